"""trainmark's pipeline side: configuration, records, statistics and the page. It never imports torch."""
