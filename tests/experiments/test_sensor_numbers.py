"""What the example of a service makes of messages' numbers, beside sets that remember everything."""

import base64
import json
from collections import Counter
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensor_services import import_example

from streamkpca import StreamingKernelPCA

example = import_example()
Verdict = example.Verdict


def arrivals(window: int = 1000, **record: Any) -> Any:
    return example.Arrivals(window, **record)


def reloaded(made: Any) -> Any:
    return example.Arrivals(made.window, **json.loads(json.dumps(made.record())))


def gaps_in(come: set[int]) -> list[tuple[int, int]]:
    """Return the ranges of numbers between others that have not come, one number after the other."""
    gaps: list[tuple[int, int]] = []
    for number in range(min(come), max(come)):
        if number not in come:
            joins = gaps and gaps[-1][1] == number - 1
            gaps[-1:] = [(gaps[-1][0], number)] if joins else [*gaps[-1:], (number, number)]
    return gaps


@given(st.lists(st.integers(0, 40), min_size=1), st.lists(st.booleans()))
def test_gaps_are_the_numbers_between_that_have_not_come(numbers: list[int], gives_up: list[bool]) -> None:
    made, come = example.Numbers(numbers[0]), {numbers[0]}
    for number, loses in zip(numbers, [*gives_up, *[False] * len(numbers)], strict=False):
        assert (number in made) == (number in come)
        if number not in come:
            made.add(number)
            come.add(number)
        if loses and made.gaps:
            low, high = gaps_in(come)[0]
            made.give_up(1)
            come.update(range(low, high + 1))
        assert made.gaps == gaps_in(come)
        assert made.missing == max(come) - min(come) + 1 - len(come)
        assert (made.first, made.highest) == (min(come), max(come))
        assert all((i in made) == (i in come) for i in range(-1, 43))
        for first in come:
            assert made.end_of_series(first) == next(i for i in range(first, 100) if i + 1 not in come)


class Message(NamedTuple):
    topic: str
    number: int
    payload: bytes
    is_redelivered: bool = False


class Naive:
    """The rule of the docstring with sets and lists; the bounds are those that the test sets."""

    def __init__(self, window: int, *, latest: int, topics: int, gaps: int, leap: int) -> None:
        self.window, self.most_latest, self.most_topics, self.most_gaps, self.leap = window, latest, topics, gaps, leap
        self.latest: list[tuple[str, int, bytes]] = []
        self.come: dict[str, set[int]] = {}
        self.given_up = Counter[str]()

    def note(self, message: Message) -> str:
        topic, number, _, is_redelivered = message
        is_known = message[:3] in self.latest
        come = self.come.pop(topic, None)
        verdict = "new"
        if come is None:
            verdict = "repeated" if is_known else "new"
            come = {number}
        elif is_known and is_redelivered:
            verdict = "repeated"
        elif number in come:
            series = next(i for i in range(number, 10_000) if i + 1 not in come) - number
            verdict = "repeated" if is_known and not (number <= 1 and series > self.window) else "restart"
        elif min(come) - number > self.window:
            verdict = "restart"
        elif number - max(come) > self.leap:
            verdict = "jump"
        self.come[topic] = {number} if verdict == "restart" else come if verdict == "repeated" else come | {number}
        self.latest = [*(other for other in self.latest if other != message[:3]), message[:3]][-self.most_latest :]
        if len(self.come) > self.most_topics:
            del self.come[next(iter(self.come))]
            self.given_up["topics"] += 1
        if sum(len(gaps_in(come)) for come in self.come.values()) > self.most_gaps:
            left = self.most_gaps // 4 + 1
            self.given_up["gaps"] += left
            for come in sorted(self.come.values(), key=lambda come: len(gaps_in(come)), reverse=True):
                gaps = gaps_in(come)
                lowest = gaps[: min(left, (len(gaps) + 1) // 2)]
                come.update(*(range(low, high + 1) for low, high in lowest))
                left -= len(lowest)
        return verdict

    @property
    def missing(self) -> int:
        gaps = [gap for come in self.come.values() for gap in gaps_in(come)]
        return sum(high - low + 1 for low, high in gaps if high - low + 1 < self.leap)


MESSAGES = st.lists(
    st.builds(Message, st.sampled_from("abcd"), st.integers(0, 30), st.sampled_from([b"x", b"y"]), st.booleans()),
    max_size=60,
)


@given(MESSAGES, st.integers(2, 12), st.integers(1, 12), st.integers(1, 4), st.integers(1, 6), st.integers(3, 20))
def test_every_message_is_judged_as_by_sets_within_the_bounds(
    messages: list[Message], window: int, latest: int, topics: int, gaps: int, leap: int
) -> None:
    naive = Naive(window, latest=latest, topics=topics, gaps=gaps, leap=leap)
    bounds = {"MOST_LATEST": latest, "MOST_TOPICS": topics, "MOST_GAPS": gaps, "LEAP": leap}
    with patch.multiple(example, **bounds):
        made = arrivals(window)
        for i, (topic, number, payload, is_redelivered) in enumerate(messages):
            verdict = made.note(topic, number, payload, is_redelivered=is_redelivered)
            assert verdict.value == naive.note(messages[i])
            assert made.missing == naive.missing
            assert made.given_up == naive.given_up
            assert len(made.latest) <= latest
            assert len(made.topics) <= topics
            assert sum(len(numbers.gaps) for numbers in made.topics.values()) == made.n_gaps <= gaps
            if i % 7 == 3:
                made = reloaded(made)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2**63 - 1) | st.integers(0, 9)), max_size=60),
    st.lists(st.sampled_from(["take", "take", "take", "save", "kill", "disconnect"]), max_size=150),
    st.integers(1, 8),
)
def test_any_numbers_and_kills_leave_each_message_counted_once(
    sent: list[tuple[str, int]], events: list[str], window: int
) -> None:
    """A broker sends again what is not acknowledged, at most as many as the service remembers."""
    waiting = [Message(topic, number, b"%d" % i) for i, (topic, number) in enumerate(sent)]
    unacknowledged: list[Message] = []
    # With so small bounds everything else is given up all the time.
    with patch.multiple(example, MOST_LATEST=window, MOST_TOPICS=1, MOST_GAPS=1):
        made, counted = arrivals(), Counter[bytes]()
        saved, saved_counted = reloaded(made), counted.copy()
        for event in [*events, *["take", "save"] * len(sent), "take"]:
            if event == "take" and waiting and len(unacknowledged) < window:
                message = waiting.pop(0)
                unacknowledged.append(message)
                topic, number, payload, is_redelivered = message
                if made.note(topic, number, payload, is_redelivered=is_redelivered) is not Verdict.REPEATED:
                    counted[payload] += 1
            if event == "save":
                saved, saved_counted = reloaded(made), counted.copy()
                # It may be killed before its acknowledgements leave; here, every other time.
                if len(counted) % 2 or not events:
                    unacknowledged.clear()
            if event == "kill":
                made, counted = reloaded(saved), saved_counted.copy()
            if event in ("kill", "disconnect"):
                waiting[:0] = [message._replace(is_redelivered=True) for message in unacknowledged]
                unacknowledged.clear()
            if event == "save" and len(unacknowledged) == window:
                unacknowledged.clear()
    assert counted == Counter({b"%d" % i: 1 for i in range(len(sent))})


def verdicts(made: Any, numbers: Any, row: bytes = b"", topic: str = "plant/pump") -> list[str]:
    """Return what is said of messages with these numbers, and the payloads `row` and the number."""
    return [made.note(topic, number, row + b"%d" % number).value for number in numbers]


def test_one_huge_number_does_not_silence_its_topic() -> None:
    made = arrivals()
    assert verdicts(made, [1, 2, 10**18, *range(3, 5000)]) == ["new", "new", "jump", *["new"] * 4997]
    assert made.missing == 0
    assert verdicts(made, [10**18, 4999]) == ["repeated", "repeated"]


def test_numbering_may_begin_at_zero_or_one_or_elsewhere() -> None:
    for first in (0, 1, 70):
        made = arrivals()
        assert set(verdicts(made, range(first, 2000))) == {"new"}
        assert made.missing == 0


def test_late_messages_are_learned_once() -> None:
    made = arrivals()
    assert verdicts(made, [5, 9, 7, 3, 7, 3, 6]) == ["new", "new", "new", "new", "repeated", "repeated", "new"]
    assert made.missing == 2


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("n", [1, 2, 500, 1000])
def test_a_publisher_that_begins_again_with_other_rows_is_noticed(first: int, n: int) -> None:
    made = arrivals()
    assert set(verdicts(made, range(first, n + first), b"a")) == {"new"}
    assert verdicts(made, range(first, n + first), b"b") == ["restart", *["new"] * (n - 1)]
    assert verdicts(made, range(first, n + first), b"b") == ["repeated"] * n
    assert made.missing == 0


def test_a_publisher_that_begins_again_with_the_same_rows_is_noticed_after_a_thousand() -> None:
    made = arrivals()
    verdicts(made, range(1, 1003))
    assert verdicts(made, range(1, 1003)) == ["restart", *["new"] * 1001]
    # Fewer may be unconfirmed still, and are taken for repeated.
    fewer = arrivals()
    verdicts(fewer, range(1, 1002))
    assert verdicts(fewer, range(1, 1002)) == ["repeated"] * 1001


def test_a_publisher_that_begins_again_unheard_is_noticed() -> None:
    made = arrivals()
    verdicts(made, range(1, 5001), b"a")
    assert verdicts(made, range(17, 40), b"b") == ["restart", *["new"] * 22]
    later = arrivals()
    verdicts(later, range(3000, 5001), b"a")
    assert verdicts(later, range(1, 40), b"b") == ["restart", *["new"] * 38]


def test_rows_of_a_restarted_publisher_that_happen_to_be_the_same_count() -> None:
    made = arrivals()
    verdicts(made, range(1, 101), b"a")
    assert verdicts(made, [1], b"b") == ["restart"]
    assert verdicts(made, range(2, 101), b"a") == ["new"] * 99


def test_two_publishers_on_one_topic_are_both_learned() -> None:
    made = arrivals()
    found = [verdict for n in range(1, 100) for verdict in verdicts(made, [n], b"a") + verdicts(made, [n], b"b")]
    assert "repeated" not in found
    assert found.count("restart") == 99


def test_repeated_messages_are_forgotten_only_after_all_that_brokers_repeat() -> None:
    made = arrivals()
    made.note("plant/pump", 7, b"row")
    for number in range(example.MOST_LATEST - 1):
        made.note("other", number, b"")
    assert made.note("plant/pump", 7, b"row") is Verdict.REPEATED
    for number in range(example.MOST_LATEST):
        made.note("another", number, b"")
    assert made.note("plant/pump", 7, b"row") is Verdict.RESTART
    assert example.MOST_LATEST > 65_535


def size_of(made: Any, alarms: list[str]) -> tuple[int, int]:
    """Return the bytes of a checkpoint's header and its values, as the library counts them."""
    extra = {"arrivals": made.record(), "alarms": base64.b64encode(json.dumps(alarms).encode()).decode()}
    StreamingKernelPCA(on_bad_rows="skip").to_bytes(extra)
    text = json.dumps(extra, separators=(",", ":"))
    return len(text), sum(text.count(mark) for mark in ",[{")


def test_the_largest_state_is_far_below_the_limits_of_a_checkpoint() -> None:
    made = arrivals()
    for number in range(example.MOST_LATEST):
        made.note("flood", number, b"")
    for topic in range(example.MOST_TOPICS):
        made.note(f"{topic}" + ",[{" * 2000, 2**62 + topic, b"")
        if made.n_gaps < example.MOST_GAPS:
            made.note(f"{topic}" + ",[{" * 2000, 2**63 - 1 - topic, b"")
    assert (len(made.latest), len(made.topics)) == (example.MOST_LATEST, example.MOST_TOPICS)
    assert made.n_gaps == example.MOST_GAPS
    alarms = ["\x01" + "[" * 999] * (example.MOST_ALARM_CHARACTERS // 1000)
    n_bytes, n_values = size_of(made, alarms)
    assert n_bytes < 4 * 2**20 / 1.5
    assert n_values < 2**18 / 2
    again = reloaded(made)
    assert again.record() == made.record()
    assert (again.n_gaps, again.missing) == (made.n_gaps, made.missing)


def test_many_topics_and_gaps_of_one_publisher_do_not_cost_others_their_messages() -> None:
    """The others are forgotten at worst, and what they send is learned, and what the broker repeats is recognised."""
    made = arrivals()
    for number in range(1, 60):
        assert made.note("plant/pump", 2 * number, b"row") is Verdict.NEW
        assert made.missing >= number - 1
        for i in range(200):
            made.note(f"flood/{number}/{i}", 0, b"")
            made.note("gaps", 2**62 + 2 * (200 * number + i), b"")
        assert made.note("plant/pump", 2 * number, b"row", is_redelivered=True) is Verdict.REPEATED
        assert len(made.topics[example.fingerprint(b"plant/pump")].gaps) == number - 1
    assert made.given_up["topics"] > 1000
    assert made.given_up["gaps"] > 1000


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("1", 1),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("1" + 30 * "0", None),
        *(
            (text, None)
            for text in ["", "-1", "+1", "1.5", "1e3", "True", "one", "1_0", " 1", "1\n", "\u0661", "\u00b2", "NaN"]
        ),
    ],
)
def test_numbers_are_decimal_digits(text: str, number: int | None) -> None:
    assert example.number_of(message_with(("number", text))) == number


def message_with(*pairs: tuple[str, str]) -> Any:
    properties = example.Properties(example.PacketTypes.PUBLISH)
    for pair in pairs:
        properties.UserProperty = pair
    message = example.MQTTMessage(1, b"plant/pump")
    message.properties = properties
    return message


def test_two_numbers_are_none() -> None:
    assert example.number_of(message_with(("number", "1"), ("number", "2"))) is None
    assert example.number_of(message_with(("Number", "1"))) is None
    assert example.number_of(message_with(("unit", "m"), ("number", "2"))) == 2
    assert example.number_of(message_with()) is None


@given(
    st.binary()
    | st.lists(st.none() | st.floats() | st.integers() | st.booleans()).map(lambda x: json.dumps(x).encode())
)
def test_payloads_are_rows_or_refused(payload: bytes) -> None:
    try:
        row = example.row_of(payload, 2)
    except ValueError:
        return
    assert row.shape == (2,)
    assert [float("nan") if value is None else value for value in json.loads(payload)] == pytest.approx(
        row.tolist(), rel=0, abs=0, nan_ok=True
    )


@given(st.text(max_size=30), st.binary(max_size=30), st.integers(2, 100))
def test_strings_of_packets_are_read_as_they_were_written(text: str, rest: bytes, most: int) -> None:
    data = text.encode()
    packet = len(data).to_bytes(2, "big") + data + rest
    if len(data) + 2 <= most:
        assert example.read_text(packet, most) == (text, len(data) + 2)
    else:
        with pytest.raises(example.MalformedPacket, match="longer than its packet"):
            example.read_text(packet, most)


def test_notices_come_seldom_and_say_how_many_were_left_out(caplog: pytest.LogCaptureFixture) -> None:
    notices = example.Notices()
    with caplog.at_level("WARNING"), patch.object(example.time, "monotonic") as clock:
        for clock.return_value in (0.0, 1.0, 9.9, 10.1, 25.0):
            notices.say("%s: a restart", "plant/pump")
            notices.say("%s: a jump", "plant/valve")
    assert [record.getMessage() for record in caplog.records] == [
        "plant/pump: a restart",
        "plant/valve: a jump",
        "plant/pump: a restart (2 more of this kind before)",
        "plant/valve: a jump (2 more of this kind before)",
        "plant/pump: a restart",
        "plant/valve: a jump",
    ]
