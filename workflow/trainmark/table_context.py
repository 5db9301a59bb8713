"""What the parts of a table's view share."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainmark import titles
from trainmark.catalogues import Messages
from trainmark.page_model import MachinePage, Page, PageTable
from trainmark.sentences import Narrator, Titles
from trainmark.table_model import Row


@dataclass
class TableContext:
    """What the parts of a table's view share."""

    page: Page
    machine: MachinePage
    data: PageTable
    text: Messages
    titles: Titles
    spoken: Titles
    prefix: str
    narrator: Narrator = field(init=False)

    def __post_init__(self) -> None:
        self.narrator = Narrator(self.text, self.data.table.table, self.spoken)
        self.chart_titles = titles.row_titles(self.data.table, self.text, short=True)

    @property
    def anchor(self) -> str:
        return self.prefix + self.data.table.table

    def title(self, row: Row) -> str:
        return self.titles[self.data.table.table][row.id]
