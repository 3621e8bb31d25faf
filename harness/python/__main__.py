"""Entry of the interpreter's processes: `python FOLDER host LIBRARY PROGRAM ARGV...` runs the program, and
`python FOLDER describe FILE DESCRIPTOR` writes the kernels of a file to a descriptor, as JSON."""
import sys

from attnbench import _host

if __name__ == "__main__":
    sys.exit({"host": _host.host, "describe": _host.describe}[sys.argv[1]](*sys.argv[2:]))
