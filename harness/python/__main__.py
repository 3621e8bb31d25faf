"""Entry of the interpreter's processes: `python FOLDER host LIBRARY PROGRAM ARGV...` runs the program, and
`python FOLDER describe FILE DESCRIPTOR` writes the kernels of a file to a descriptor, as JSON."""
import io
import sys

from attnbench import _host


class _Stderr(io.FileIO):
    """Drops what cannot be written (a full disk, a closed terminal): it must not end a run."""

    def write(self, data):
        try:
            return super().write(data)
        except OSError:
            return len(data)


if __name__ == "__main__":
    sys.stderr = io.TextIOWrapper(_Stderr(2, "w", closefd=False), errors="backslashreplace", write_through=True)
    sys.exit({"host": _host.host, "describe": _host.describe}[sys.argv[1]](*sys.argv[2:]))
