"""Pictures of what a model has learned. Each function draws on the Axes given, or on new ones, and returns them.

No function uses pyplot: figures belong to the caller, in servers and threads too.

novelty : `draw_novelty`, scores over time
events : `draw_event`, the features of an event over time
report_page : `write_report`, all events as a page for a browser
canvas : `make_figure`, and the colours and legends of all
"""

from streamkpca.plots.canvas import make_figure
from streamkpca.plots.events import draw_event
from streamkpca.plots.novelty import draw_novelty
from streamkpca.plots.report_page import write_report

__all__ = ["draw_event", "draw_novelty", "make_figure", "write_report"]
