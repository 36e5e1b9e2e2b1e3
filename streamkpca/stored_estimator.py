"""What can be saved and loaded."""

import io
import os
from collections.abc import Callable
from typing import IO, Any, Self

from streamkpca.checkpoints import checkpoint_bytes, read_checkpoint, write_checkpoint
from streamkpca.checkpoints.files import write_durably
from streamkpca.errors import CheckpointError
from streamkpca.kernels import Kernel
from streamkpca.stream_estimator import StreamEstimator
from streamkpca.stream_settings import StreamSettings


class StoredEstimator(StreamEstimator):
    """Base of the streaming estimator: its way to disk and back."""

    extra_: Any = None

    def save(self, path: str | os.PathLike[str], extra: Any = None) -> None:
        """Write all that the model has learned to a file.

        Parameters
        ----------
        path : path-like
            Replaced at once when the new file is whole and on the disk; whatever happens before, the old one stays.
        extra : object, optional
            Of what JSON knows; `load` returns it as `extra_`. The offset in the source up to which rows were learned,
            say, from which a consumer goes on.

        Raises
        ------
        OSError
            The disk is full, the folder is read-only, ...; the old file stays, or the new one is in its place.
        TypeError, ValueError
            `extra` is no JSON, or a parameter makes no sense.

        Notes
        -----
        An uncompressed npz, numpy's own format, with parameters and counters in a JSON text. A model that is loaded
        goes on as if it had never been stopped, bit for bit, and the same state makes the same bytes. Functions are
        never stored: a kernel with functions of the caller must be passed to `load` again. Rows that came since the
        last block are saved too.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from streamkpca import StreamingKernelPCA, load
        >>> model = StreamingKernelPCA(1, kernel="linear").partial_fit([[-2.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(pathlib.Path(folder, "plant.npz"), extra={"offset": 3})
        ...     load(pathlib.Path(folder, "plant.npz")).extra_
        {'offset': 3}
        """
        write = self._writer("save", extra)
        write_durably(path, write)

    def to_bytes(self, extra: Any = None) -> bytes:
        """Return what `save` writes.

        Parameters
        ----------
        extra : object, optional
            As for `save`.

        Returns
        -------
        bytes

        Raises
        ------
        TypeError, ValueError
            As `save`.

        Examples
        --------
        >>> from streamkpca import StreamingKernelPCA
        >>> data = StreamingKernelPCA(1, kernel="linear").partial_fit([[-2.0, 0.0], [2.0, 0.0]]).to_bytes()
        >>> StreamingKernelPCA.from_bytes(data).n_samples_seen_
        2
        """
        return checkpoint_bytes(self._writer("to_bytes", extra))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, kernel: Kernel | None = None) -> Self:
        """Read a model that `save` wrote.

        Parameters
        ----------
        path : path-like
        kernel : Kernel, optional
            The settled kernel, where it has functions of the caller; else it is in the file.

        Returns
        -------
        StreamingKernelPCA
            Its `extra_` is what it was saved with.

        Raises
        ------
        CheckpointError
            The file is damaged, no checkpoint, of a later format, or makes no sense.
        OSError
            It cannot be read.

        Notes
        -----
        A file from a stranger does no harm: nothing is unpickled or evaluated, no more memory is taken than the file is
        long, and what was read is checked for meaning: that the factor is that of the atoms' kernel matrix, that the
        moments are those of some rows, and so on.

        Examples
        --------
        A file whose bytes have changed on the way is refused:

        >>> import pathlib, tempfile
        >>> from streamkpca import StreamingKernelPCA
        >>> data = bytearray(StreamingKernelPCA(1, kernel="linear").partial_fit([[-2.0, 0.0], [2.0, 0.0]]).to_bytes())
        >>> data[len(data) // 2] ^= 1
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "plant.npz")
        ...     n_bytes = path.write_bytes(data)
        ...     StreamingKernelPCA.load(path)
        Traceback (most recent call last):
            ...
        streamkpca.errors.CheckpointError: load: ...plant.npz: it is damaged: ...
        """
        with open(path, "rb") as file:
            return cls._read(file, f"load: {os.fspath(path)!s}", kernel)

    @classmethod
    def from_bytes(cls, data: bytes, *, kernel: Kernel | None = None) -> Self:
        """Read a model that `to_bytes` wrote.

        Parameters
        ----------
        data : bytes
        kernel : Kernel, optional
            As for `load`.

        Returns
        -------
        StreamingKernelPCA

        Raises
        ------
        CheckpointError
            As `load`.

        Examples
        --------
        A kernel with a function of the caller must be given again:

        >>> from streamkpca import StreamingKernelPCA
        >>> from streamkpca.kernels import Custom
        >>> kernel = Custom(lambda X, Y: X @ Y.T)
        >>> data = StreamingKernelPCA(1, kernel=kernel).partial_fit([[-2.0, 0.0], [2.0, 0.0]]).to_bytes()
        >>> StreamingKernelPCA.from_bytes(data, kernel=kernel).eigenvalues_.round(3)
        array([8.])
        """
        return cls._read(io.BytesIO(data), "from_bytes", kernel)

    def _writer(self, method: str, extra: Any) -> Callable[[IO[bytes]], None]:
        where = f"{type(self).__name__}.{method}"
        self._settings(where)
        parameters, stream = self.get_params(deep=False), self._stream
        return lambda file: write_checkpoint(file, parameters, stream, extra, where)

    @classmethod
    def _read(cls, file: IO[bytes], where: str, kernel: Kernel | None) -> Self:
        if kernel is not None and not (isinstance(kernel, Kernel) and kernel.is_settled):
            raise TypeError(f"{where}: expected kernel to be a settled Kernel but got {kernel!r}; pass model.kernel_")
        try:
            parameters, stream, extra = read_checkpoint(file, cls._checked_settings, kernel)
        except CheckpointError as error:
            raise CheckpointError(f"{where}: {error}") from None
        model = cls(**parameters)
        model._stream, model.extra_ = stream, extra
        return model

    @classmethod
    def _checked_settings(cls, parameters: dict[str, Any]) -> StreamSettings:
        model = cls(**parameters)
        return model._settings(cls.__name__)
