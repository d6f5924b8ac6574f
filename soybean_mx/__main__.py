"""``python -m soybean_mx``."""
import sys

from soybean_mx.cli import main

if __name__ == "__main__":
    sys.exit(main())
