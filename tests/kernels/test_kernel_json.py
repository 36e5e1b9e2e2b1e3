"""Kernels as JSON: what is written reads as that kernel, and nothing else does."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca import kernels
from streamkpca.kernels import kernel_from

POSITIVE = st.floats(0.01, 100)
UNITS = ["range", "std", [0.5, 3.0]]
SIMPLE = st.one_of(
    st.just(kernels.Linear()),
    st.just(kernels.Cosine()),
    st.just(kernels.Cosine().on([1, 0])),
    st.builds(kernels.RBF, gamma=POSITIVE | st.sampled_from(["spread", "contrast"])),
    st.builds(kernels.Polynomial, degree=st.integers(1, 4), gamma=POSITIVE, coef0=st.floats(0, 3)),
    st.builds(kernels.Matern, nu=st.sampled_from([0.5, 1.5, 2.5]), length_scale=POSITIVE),
    st.builds(lambda k, units: k.in_units(units), st.just(kernels.Laplacian()), st.sampled_from(UNITS)),
)
KERNELS = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(lambda c, k: c * k, POSITIVE, inner),
        st.builds(lambda k, p: k**p, inner, st.integers(1, 3)),
        st.builds(lambda k: k.exp(), inner),
        st.builds(lambda k: k.on([0, 1]), inner),
    ),
    max_leaves=4,
)


@given(KERNELS)
def test_what_is_written_reads_as_that_kernel(kernel):
    assert kernel_from(json.loads(kernel.to_json())) == kernel
    assert kernel_from(f"  {kernel.to_json()}") == kernel


def test_the_form_is_small():
    kernel = 2.0 * kernels.RBF(0.5).on([3, 1]) + kernels.Linear()
    chosen = {"type": "OnColumns", "kernel": {"type": "RBF", "gamma": 0.5}, "columns": [3, 1]}
    scaled = {"type": "Scaled", "scale": 2.0, "kernel": chosen}
    assert json.loads(kernel.to_json()) == {"type": "Sum", "left": scaled, "right": {"type": "Linear"}}
    assert kernel_from('{"type": "RBF"}') == kernels.RBF()
    one_column = '{"type": "OnColumns", "kernel": {"type": "Linear"}, "columns": 3}'
    assert kernel_from(one_column) == kernels.Linear().on(3)


@pytest.mark.parametrize("kernel", [kernels.Custom(max), kernels.RBF(1.0) + kernels.Custom(max)], ids=["alone", "part"])
def test_functions_are_never_written(kernel):
    with pytest.raises(
        TypeError, match=r"calls the function <built-in function .* code and not stored; pass the kernel"
    ):
        kernel.to_json()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting property name"),
        ('{"type": 3}', "expected an object with the type Cosine, .*Sum but got"),
        ({"type": "RBF", "gamma": [1.0]}, "RBF: gamma must be a number"),
        ('{"type": "Custom", "function": "print"}', "expected an object with the type"),
        ('{"type": "RBF", "gama": 1}', "RBF has no parameter 'gama'; it has gamma. JSON of a kernel looks like"),
        ('{"type": "RBF", "gamma": -1}', r"RBF: gamma must be a finite number in \(0"),
        ('{"type": "RBF", "gamma": NaN}', "NaN is not a finite number"),
        ('{"type": "RBF", "gamma": 1e999}', "RBF: gamma must be a finite number"),
        ('{"type": "Sum", "left": {"type": "Linear"}}', "missing 1 required positional argument: 'right'"),
        ('{"type": "InUnits", "kernel": {"type": "RBF"}, "units": {}}', "one positive number for each feature"),
        ('{"type": "Exponential", "kernel": ' * 300 + '{"type": "RBF"}' + "}" * 300, "nested more than 200 deep"),
        ('{"type": "Exponential", "kernel": ' * 30_000, "nested more than 200 deep"),
    ],
)
def test_other_text_is_refused(text, message):
    with pytest.raises(ValueError, match=rf"^kernel_from: cannot read the kernel .*{message}"):
        kernel_from(text)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ("rbff", ValueError, "^kernel_from: kernel must be .* one of 'cosine', .* or JSON such as .*, got 'rbff'"),
        (kernels.RBF, TypeError, r"got <class .*; call the class, as in RBF\(\)"),
        (max, TypeError, r"got <built-in function max>; wrap it: kernels\.Custom\(f\)"),
        (None, TypeError, "kernel must be a Kernel"),
    ],
)
def test_what_is_no_kernel_is_refused_with_a_remedy(value, error, message):
    with pytest.raises(error, match=message):
        kernel_from(value)
