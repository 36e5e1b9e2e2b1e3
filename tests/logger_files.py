"""Small files of the forms that loggers, historians and spreadsheets write, with their right reading.

Run::

    python tests/logger_files.py FOLDER

It writes them all into a folder. Forms follow manuals and public bug reports; names and numbers are made here.
"""

import json
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

N = 120
STEP = timedelta(minutes=10)
START = datetime(2026, 5, 1)
ABC = ("a", "b", "c")


class Form(NamedTuple):
    """A file, the columns that are watched, the first two times, and rows that are left out."""

    data: str | bytes
    names: tuple[str, ...] = ABC
    times: tuple[Any, ...] = (START, START + STEP)
    left_out: int = 0


class Refused(NamedTuple):
    """A file that is refused, what the message says, and options that read it; `turn` is done to the file before."""

    data: str
    message: str
    remedy: dict[str, Any]
    names: tuple[str, ...]


def numbers() -> list[list[float]]:
    """Make related numbers of three sensors, none of which only rises."""
    load = np.random.default_rng(4).normal(size=N)
    noise = np.random.default_rng(5).normal(size=(N, 3))
    return np.round(np.outer(load, [2.0, 1.5, 4.0]) + 0.1 * noise + [20.0, 101.0, 48.0], 3).tolist()


def when(i: int) -> datetime:
    return START + i * STEP


def write(*above: str, form: str = "{t},{0},{1},{2}", comma: bool = False, end: str = "\n", days: int = 1) -> str:
    """Write lines above, and a line for each row; `days` makes the steps of a day."""
    lines = list(above)
    for i, row in enumerate(numbers()):
        cells = [str(x).replace(".", ",") if comma else str(x) for x in row]
        t = when(i) if days == 1 else START + timedelta(days=i)
        lines.append(form.format(*cells, t=t, i=i, n=i + 1, h=100 * t.hour + t.minute, j=t.timetuple().tm_yday))
    return end.join(lines) + end


def write_time(form: str) -> str:
    return write("when;a;b;c", form=f"{{t:{form}}};{{0}};{{1}};{{2}}", comma=True)


def long(names: str, form: str, tags: tuple[str, ...] = ABC, *, stacked: bool = False) -> str:
    """Write a line for each value, by rows or by tags."""
    X = numbers()
    places = [(i, k) for i in range(N) for k in range(3)]
    lines = sorted(places, key=lambda place: place[1]) if stacked else places
    return "\n".join(
        [
            names,
            *(form.format(t=when(i), s=when(i) + timedelta(seconds=7 * k), tag=tags[k], x=X[i][k]) for i, k in lines),
        ]
    )


def with_cell(row: int, cell: str, text: str) -> str:
    lines = text.split("\n")
    cells = lines[row].split(",")
    lines[row] = ",".join([cells[0], cell, *cells[2:]])
    return "\n".join(lines)


def epoch(i: int, per_second: float, begin: float) -> str:
    value = ((when(i) - datetime(1970, 1, 1)).total_seconds() - begin) * per_second
    return str(round(value)) if per_second > 1 else f"{value:.6f}"


def write_epoch(name: str, per_second: float, begin: float) -> str:
    rows = [",".join([epoch(i, per_second, begin), *map(str, row)]) for i, row in enumerate(numbers())]
    return "\n".join([f"{name},a,b,c", *rows]) + "\n"


def write_hex() -> str:
    rows = (
        ",".join([str(1777593600000 + 250 * i), *(f"{int(10 * x) % 256:02X}" for x in row)])
        for i, row in enumerate(numbers())
    )
    return "\n".join(["ms,1412,1415,1416", *rows]) + "\n"


def shuffle() -> str:
    """Write blocks of 20 rows in another order."""
    head, *rows = write("time,a,b,c").strip().split("\n")
    return "\n".join([head, *(row for k in (2, 0, 5, 1, 4, 3) for row in rows[20 * k : 20 * k + 20])]) + "\n"


UNNAMED = ("1", "2", "3")
PUMPS = ("Pump 1 Flow", "Pump 1 Temp", "Pump 2 Flow")
FORMS = {
    "a name fewer than cells": Form(write('"a","b","c"', form='"{t}",{0},{1},{2}')),
    "row names without a name": Form(write('"a" "b" "c"', form='"{n}" {0} {1} {2}'), times=()),
    "a time and a text without names": Form(write("a,b,c", form="{t},pump,{0},{1},{2}")),
    "keys in two cells": Form(write("Logger,Model 7", "Serial,123456", "Interval,600", "", "Time,a,b,c")),
    "limits above the names": Form(write("Channel,1,2,3", "High,120,130,90", "Low,0,50,10", "Name,a,b,c")),
    "keys padded by a spreadsheet": Form(
        write(
            "Name,EAST,,,",
            "Number,7262,,,",
            "Start,05/01/2026,,,",
            ",,,,",
            "Start,a,b,c,State",
            form="{t},{0},{1},{2},ok",
        )
    ),
    "a site line": Form(write("site,Dummy,report,Daily", ",,,", "Time,a,b,c")),
    "units alike": Form(
        write(
            ",Inv,Inv,Inv",
            ",a,b,c",
            ",Analog,Analog,Analog",
            "DD.MM.YYYY hh:mm:ss,[W],[W],[W]",
            form="{t:%d.%m.%Y %H:%M:%S},{0},{1},{2}",
        )
    ),
    "three lines of names": Form(
        write("TIME;BHP;BHP;OPR", "DAYS;BARS;BARS;SM3", ";w-1;w-2;w-1", form="{t:%d.%m.%Y};{0};{1};{2}", days=2),
        ("BHP w-1", "BHP w-2", "OPR w-1"),
        (START, START + timedelta(days=1)),
    ),
    "groups with gaps": Form(write("Time,Pump 1,,Pump 2", ",Flow,Temp,Flow"), PUMPS),
    "groups in full": Form(write("Time,Pump 1,Pump 1,Pump 2", "Time,Flow,Temp,Flow", ",l/s,C,l/s"), PUMPS),
    "a text that begins with a bracket": Form(
        write("[LOGGING],CPU_1,2,3", "LOG01", "DATE[Y],SHORT[DEC.0],FLOAT[DEC.4],FLOAT[DEC.4]", "TIME,a,b,c", ",,,")
    ),
    "names in blocks": Form(
        write(
            "%Log%", *(line for k, name in enumerate(ABC) for line in (f"Channel : {name}", f"ID : {k}", "Type : Raw"))
        )
    ),
    "units after a line of numbers": Form(
        write(
            '"Format","CSV"',
            '"Rate","20"',
            "",
            '"Time","a","b","c"',
            '"s","rpm","C","bar"',
            '"1","2","3","4"',
            "",
            form='"{t}","{0}","{1}","{2}"',
        )
    ),
    "names that look like numbers": Form(write("time,12V,50Hz,2m"), ("12V", "50Hz", "2m")),
    "signs apart from digits": Form(write("time,a,b,c", form="{t},+   {0},+  {1},+ {2}")),
    "formulas": Form(write("time,a,b,c", form='{t},="{0}","=""{1}""",="{2}"')),
    "year, month, day": Form(
        write("Year,Month,Day,Hour,Minute,a,b,c", form="{t:%Y},{t.month},{t.day},{t.hour},{t.minute},{0},{1},{2}")
    ),
    "day of the year": Form(write("Year,DOY,HHMM,a,b,c", form="{t:%Y},{j},{h},{0},{1},{2}")),
    "hours beside a date": Form(write("Date,HHMM,a,b,c", form="{t:%Y-%m-%d},{h},{0},{1},{2}")),
    "digits of two columns": Form(write("Date,Time,a,b,c", form="{t:%y%m%d},{t:%H%M%S},{0},{1},{2}")),
    "a column of milliseconds": Form(
        write("Date,Time,ms,a,b,c", form="{t:%Y/%m/%d},{t:%H:%M:%S},{i},{0},{1},{2}"),
        times=(START, START + STEP + timedelta(milliseconds=1)),
    ),
    "FILETIME": Form(write_epoch("Timestamp", 1e7, -11644473600)),
    "ticks": Form(write_epoch("Ticks", 1e7, -62135596800)),
    "days of spreadsheets": Form(write_epoch("Date", 1 / 86400, -25569 * 86400)),
    "seconds since 1904": Form(write_epoch("t", 1.0000000001, -2082844800).replace("t,", "t,")),
    "a meter that rises slowly": Form(
        "\n".join(
            [
                "time,a,b,total",
                *(f"{START + i * STEP},{x},{y},{1563 + i // 12}.5" for i, (x, y, _) in enumerate(numbers() * 4)),
            ]
        ),
        ("a", "b", "total"),
    ),
    "days in any order": Form(shuffle()),
    "a clock that is wrong once": Form(write("time,a,b,c").replace("2026-05-01 05:00:00", "2106-02-07 06:28:00")),
    "short rows": Form(
        "\n".join(
            line.rpartition(",")[0] if i % 7 == 3 else line for i, line in enumerate(write("time,a,b,c").split("\n"))
        )
        + "\n"
    ),
    "a third state": Form(
        "\n".join(
            [
                "time,a,b,c,pump",
                *(
                    f"{line},{('On', 'Off', 'Fault')[i % 40 // 19]}"
                    for i, line in enumerate(write().strip().split("\n"))
                ),
            ]
        )
        + "\n"
    ),
    "rows in an array": Form(
        json.dumps(
            {"data": [{"time": str(when(i))} | dict(zip(ABC, row, strict=True)) for i, row in enumerate(numbers())]},
            indent=1,
        )
    ),
    "columns in arrays": Form(
        json.dumps(
            {
                "hourly": {"time": [str(when(i)) for i in range(N)]}
                | dict(zip(ABC, map(list, zip(*numbers(), strict=True)), strict=True))
            }
        )
    ),
    "NUL inside a line": Form(with_cell(7, "1\x002", write("time,a,b,c"))),
    "latin letters": Form(write("time [°],a,b,c").encode("cp1252")),
    **{
        f"long, by {name}": Form(long(f"time,{name},value", "{s},{tag},{x}"))
        for name in ("topic", "measurement", "Parameter Name", "path", "name")
    },
    "one tag after the other": Form(long("moment;code;value", "{t};{tag};{x}", stacked=True)),
    "one tag after the other, apart": Form(
        long("entity_id,state,last_changed", "sensor.{tag},{x},{s}", stacked=True),
        tuple(f"sensor.{tag}" for tag in ABC),
    ),
    **{
        f"times as {form}": Form(write_time(form))
        for form in (
            "%Y年%m月%d日 %H:%M:%S",
            "%d:%m:%Y %H:%M:%S",
            "%d. %m. %Y %H:%M:%S",
            "%H:%M:%S %d.%m.%Y",
            "%Y %m %d %H:%M",
            "%Y-%m-%dT%H-%M-%S",
            "%y/%m/%d %H:%M:%S",
            "%Y%m%d:%H%M",
            "%Y:%m:%d %H:%M:%S",
            "%a %d/%m/%Y %H:%M",
        )
    },
    "times as of Korea": Form(write_time("%Y-%m-%d %p %I:%M:%S").replace("AM", "오전").replace("PM", "오후")),
}
REFUSED = {
    "rows and columns exchanged": Refused(
        "\n".join(
            [
                ",".join(["id", *(f"{when(i)}" for i in range(N))]),
                *(
                    ",".join([name, *map(str, column)])
                    for name, column in zip(ABC, zip(*numbers(), strict=True), strict=True)
                ),
            ]
        ),
        r"line 2: has times above its columns.*transpose it",
        {},
        ABC,
    ),
    "two names fewer than cells": Refused(
        write("a,b", form="{0},{1},{2},7"),
        r"expected 4 names, .* but there are 2 names \(a, b\).*--names A,B",
        {"names": ["a", "b", "c", "d"]},
        ("a", "b", "c", "d"),
    ),
    "names that are left out": Refused(
        write("a,b", form="{0},{1},{2},7"),
        r"or count them \(--no-header --skip 1\)",
        {"header": False, "skip": 1},
        ("0", "1", "2", "3"),
    ),
    "units that change": Refused(
        write("time,a,unit", form="{t},{0},V")
        .replace("00,", "00,")
        .replace(":20:00,", ":20:00,9")
        .replace("V\n2026-05-01 01:3", "mV\n2026-05-01 01:3"),
        r"column 'unit' holds units that change \(V, mV\).*--by unit=V",
        {"by": ("unit", "V")},
        ("a",),
    ),
}


def main(folder: str) -> None:
    for name, form in {**FORMS, **REFUSED}.items():
        data = form.data if isinstance(form.data, bytes) else form.data.encode()
        Path(folder, "".join(letter if letter.isalnum() else "_" for letter in name) + ".csv").write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1])
