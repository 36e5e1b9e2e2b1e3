"""Which alarms to expect
=======================

A machine can be odd in two ways: its sensors contradict each other, or it runs where it never ran before.

A pump runs at half load for two days. Then its load explores the range, which harms nothing; later a gauge drifts, at a
load that is usual. Users want to tell these apart: `Event.kind` is "relation" for what does not fit, and "place" for
what is new. Of PCA, the usual two statistics are shown beside it: Hotelling's T2, the distance from the centre within
the components, and SPE, the distance from them.

It needs the extras ``plots`` and ``sklearn``.
"""

import numpy as np
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from streamkpca import plots
from streamkpca.monitoring import Monitor

# %%
# The pump
# --------
#
# A row a minute, four days. Head falls with the square of the flow, and power follows both.

SENSORS = ["flow", "head", "power", "vibration"]

random = np.random.default_rng(3)
n = 4 * 24 * 60
load = 0.5 + 0.08 * np.sin(np.arange(n) / 30) + 0.01 * random.normal(size=n)
explores = np.arange(n) // 60 == 60
load[explores] += 0.35 * np.sin(np.linspace(0.0, np.pi, 60))
flow, head = 90 * load, 40 - 22 * load**2
rows = np.column_stack([flow, head, 2 + 0.011 * flow * head, 1 + 0.8 * load])
rows += random.normal(scale=[0.5, 0.1, 0.15, 0.03], size=rows.shape)
drifts = np.arange(n) // 60 == 80
rows[drifts, 1] += np.linspace(0.0, 2.0, 60)

# %%
# The monitor
# -----------

monitor = Monitor()
record = monitor.update(rows)
for event in monitor.events_:
    if event.n_alarms > 10:
        cause = event.features[0]
        print(f"minute {event.start} to {event.end}, {event.kind}, once in {event.severity:,.0f} minutes:", end=" ")
        print(f"{SENSORS[cause.feature]} {cause.value:.1f}, expected {cause.expected:.1f}")

# %%
# PCA's statistics
# ----------------
#
# Two components of the first two days; limits that one row in a hundred of these exceeds.

learned = slice(0, 2880)
scaler = StandardScaler().fit(rows[learned])
pca = PCA(2).fit(scaler.transform(rows[learned]))
scores = pca.transform(scaler.transform(rows))
t2 = (scores**2 / pca.explained_variance_).sum(axis=1)
spe = ((scaler.transform(rows) - pca.inverse_transform(scores)) ** 2).sum(axis=1)
ratios = {"T2": t2 / np.quantile(t2[learned], 0.99), "SPE": spe / np.quantile(spe[learned], 0.99)}
for name, ratio in ratios.items():
    shares = ", ".join(f"{(ratio[hour] > 1).mean():.2f}" for hour in (explores, drifts))
    print(f"{name}: share of minutes in alarm while the load explores, and while the gauge drifts: {shares}")

# %%
# The picture
# -----------
#
# Above, the sensors: the new load moves all of them, the drift one. Below, the rarity of both hours, and the ratios of
# PCA's statistics to their limits. SPE takes the new load for a fault, as relations are no straight lines.

figure = plots.make_figure(width=10, height=6)
panels = figure.subplots(3, 2, sharex="col", sharey="row")
for column, (hour, title) in enumerate([(explores, "a new load: place"), (drifts, "a gauge drifts: relation")]):
    first = int(np.flatnonzero(hour)[0])
    shown = slice(first - 60, first + 120)
    minute = np.arange(-60, 120)
    above, middle, below = panels[:, column]
    above.plot(minute, scaler.transform(rows[shown]), linewidth=1, label=SENSORS)
    middle.plot(minute, record.rarity[shown], color="black", linewidth=1)
    middle.plot(minute, record.threshold[shown], color="tab:red", linewidth=1)
    for name, ratio in ratios.items():
        below.plot(minute, ratio[shown], linewidth=1, label=name)
    below.axhline(1.0, color="tab:red", linewidth=1)
    middle.set(yscale="log")
    below.set(yscale="log", xlabel="minutes")
    above.set(title=title)
    for panel in (above, middle, below):
        panel.axvspan(0, 60, color="#F0E442", alpha=0.3)
for panel, name in zip(panels[:, 0], ["sensors, standardised", "rarity", "over its limit"]):
    panel.set(ylabel=name)
panels[0, 0].legend(loc="lower left", fontsize="small")
panels[2, 0].legend(loc="upper left", fontsize="small")
figure.savefig("which_alarms_to_expect.png", dpi=110)
