"""How a monitor learns: the numbers that somebody chose, each with what it is and the figure that chose it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class YoungPolicy:
    """The numbers of learned rows at which a monitor changes what it does, and what it does until then."""

    # From here on rows are judged. With 32, average precision on short streams was 0.05 lower.
    n_first: int = 64
    # Each time that the learned rows have grown by this factor, the rows held out are scored again.
    growth: float = 1.5
    # Learned rows after which they are scored again, at the latest. With growth alone, slow drifts outran the scale: on
    # 14 drifting streams, the mean area under the ROC curve was 0.02 lower.
    n_between: int = 512
    # Until here the model is refitted each time, as its own schedule publishes too late for young streams.
    n_refitted: int = 2048
    # Until here all rows but wild ones are learned, later those that are not rare. A stream has four rows for three
    # that are learned.
    n_grown: int = 3072
    # From here on a model stands still while the stream does: it would learn faults that begin slowly, and what is rare
    # among the rows below the threshold. With 4,608 rows average precision on sixteen families of real streams was
    # 0.017 lower, and 0.44 of the healthy rows of an air handler were learned.
    n_settled: int = 9216


@dataclass(frozen=True)
class LearningPolicy:
    """Which rows are held out, and when a stream has moved so far that a grown monitor learns it."""

    # One chunk of this number is held out: its rows are not learned, and their scores tell what healthy rows score.
    held_out: int = 4
    # Most rows that are held out: they resolve once in 2,000 rows.
    most_held: int = 2048
    # A chunk is held out whole if at most this share of it is not to be learned; of another one the rows that are.
    most_left_out: float = 0.5
    # Recent rows that count as much as all before them.
    recent: int = 512
    # Share of the recent rows that are odder than the healthy row in the middle, from which on the stream has moved.
    # Faults move the upper end of the scores, drifts the middle.
    moved: float = 0.6
    # Share of the recent rows that are odder, from which on the stream drifts, unless many are too rare to be learned:
    # where a fault or another state begins at once, nearly as many are too rare as are odder.
    drifted: float = 0.9
    # Share of the recent rows that are too rare to be learned, up to which odder rows are a drift.
    few_rare: float = 0.6
    # Rows as rare as this are not learned on need, and count as signs of a lasting change.
    rare: float = 100.0
    # The last rows are looked at if they leave at most this share of the variance that the numbers of a row leave of
    # each other. Of sixteen families only the one whose rows are in no order leaves more: 0.998.
    least_told: float = 0.98
    # A number is wild if it is this many times farther from the chunk's median than three of four are: one such number
    # in the sums hides all later deviations of its column, as no row is taken out of them.
    wild: float = 100.0
    # One wild row in this number of rows is a fault of the record; more of them are a state of the machine.
    rows_for_one_wild: int = 16


YOUNG = YoungPolicy()
LEARNING = LearningPolicy()
