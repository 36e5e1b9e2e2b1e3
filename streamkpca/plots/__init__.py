"""Pictures of what a model has learned. Each takes the Axes to draw on, or makes its own, and returns it.

No picture touches pyplot: figures belong to whoever holds them, in servers and threads too.
"""

from streamkpca.plots.atoms import draw_atom_drift, draw_atoms
from streamkpca.plots.canvas import make_figure
from streamkpca.plots.contours import draw_contours
from streamkpca.plots.novelty import draw_novelty
from streamkpca.plots.projections import draw_projections
from streamkpca.plots.spectra import draw_sparsity_path, draw_spectrum

__all__ = [
    "draw_atom_drift",
    "draw_atoms",
    "draw_contours",
    "draw_novelty",
    "draw_projections",
    "draw_sparsity_path",
    "draw_spectrum",
    "make_figure",
]
