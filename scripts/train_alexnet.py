"""Train AlexNet; with no argument, on handwritten digits, tiled over two CPU contexts (see docs/scripts.md)."""
from classification import main

if __name__ == "__main__":
    main("alexnet")
