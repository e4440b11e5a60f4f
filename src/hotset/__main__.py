"""`python -m hotset` is `hotset`."""

import sys

from hotset.cli import main

if __name__ == "__main__":
    sys.exit(main())
