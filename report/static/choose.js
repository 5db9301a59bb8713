// Send a first visitor to the page in a language that the browser asks for.
const links = [...document.querySelectorAll("a[hreflang]")];
const wanted = navigator.languages.map((tag) => tag.split("-")[0]);
const found = wanted.map((tag) => links.find((link) => link.hreflang === tag)).find(Boolean);
location.replace((found || links[0]).href + location.hash);
