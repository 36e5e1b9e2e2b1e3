"""A pipeline of River
===================

A pipeline scales a server's readings, scores them, raises alarms and learns, row by row, as River does. Faults are not
learned. A lasting change would not be learned either, and every row after it would be an alarm; so `drift.ADWIN`
watches the alarms, and when their rate has changed for good, the next rows are learned whatever they are.

It needs the extras ``plots`` and ``river``.
"""

import numpy as np
from river import anomaly, drift, preprocessing, stats

from streamkpca import plots
from streamkpca.adapters.for_river import KernelPCADetector

# %%
# The rows
# --------
#
# Four sensors follow one load. One of them has seven short faults, and another is calibrated anew at row 3,000.

N = 6000
load = np.sin(np.arange(N) / 50)
rows = np.column_stack([0.5 + 0.3 * load, 0.4 - 0.2 * load, 0.5 + 0.2 * load**2, 0.3 + 0.1 * load])
rows += np.random.default_rng(0).normal(scale=0.01, size=rows.shape)
is_fault = np.zeros(N, dtype=bool)
for start in (1500, 2000, 2500, 4000, 4500, 5000, 5500):
    is_fault[start : start + 6] = True
rows[is_fault, 1] += 0.3
rows[3000:, 2] += 0.3

# %%
# The pipeline
# ------------
#
# `QuantileFilter` calls the two percent of the highest scores anomalous, and keeps them from the detector. Anomalies
# count among them: with more than two percent, it would miss some.

QUANTILE = 0.98
detector = KernelPCADetector(max_atoms=64, block_size=256)
pipeline = preprocessing.StandardScaler() | anomaly.QuantileFilter(detector, q=QUANTILE)
judge = pipeline["QuantileFilter"]

# %%
# Row by row
# ----------
#
# Everything is new to a young detector, and to one that meets a change. So there are no verdicts on the first thousand
# rows; the quantile begins anew half-way through them, and again when 500 rows after a change were learned.

watch = drift.ADWIN(clock=8)
scores, thresholds = np.full((2, N), np.nan)
is_alarm = np.zeros(N, dtype=bool)
changes = []
trusted_until = 1000
for i, row in enumerate(rows.tolist()):
    x = dict(zip(["cpu", "disk", "memory", "network"], row))
    if i in (500, trusted_until):
        judge.quantile = stats.Quantile(QUANTILE)
    if i >= 1000:
        scores[i], thresholds[i] = pipeline.score_one(x), judge.quantile.get() or np.nan
        is_alarm[i] = judge.classify(scores[i])
        watch.update(int(is_alarm[i]))
        if watch.drift_detected and watch.estimation > 0.5:
            changes.append(i)
            trusted_until = i + 500
    judge.protect_anomaly_detector = i >= trusted_until
    pipeline.learn_one(x)

# %%
# The result
# ----------

print("lasting changes noticed at row", *changes)
print(f"faulty rows with an alarm {is_alarm[is_fault].mean():.0%}")
print(f"other rows with an alarm {is_alarm[1000:][~is_fault[1000:]].mean():.1%}")

figure = plots.make_figure(width=12, height=4.4)
axes = figure.add_subplot()
for row in changes:
    axes.axvline(row, color="black", linewidth=1, label="lasting change noticed")
plots.draw_novelty(scores, threshold=thresholds, labels=is_fault, label_names=("healthy", "fault"), ax=axes)
figure.savefig("river_pipeline.png", dpi=130)
