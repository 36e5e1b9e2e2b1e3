"""Pictures of what a model has learned. Each function draws on the Axes given, or on new ones, and returns them.

No function uses pyplot: figures belong to the caller, in servers and threads too.
"""

from streamkpca.plots.atoms import draw_atom_drift, draw_atoms
from streamkpca.plots.canvas import make_figure
from streamkpca.plots.charts import draw_control_chart
from streamkpca.plots.contours import draw_contours
from streamkpca.plots.contributions import draw_contributions
from streamkpca.plots.novelty import draw_novelty
from streamkpca.plots.projections import draw_projections
from streamkpca.plots.spectra import draw_sparsity_path, draw_spectrum
from streamkpca.plots.widths import draw_width_scores

__all__ = [
    "draw_atom_drift",
    "draw_atoms",
    "draw_contours",
    "draw_contributions",
    "draw_control_chart",
    "draw_novelty",
    "draw_projections",
    "draw_sparsity_path",
    "draw_spectrum",
    "draw_width_scores",
    "make_figure",
]
