"""Train a multi-layer perceptron; with no argument, on handwritten digits, tiled over two CPU contexts."""
from classification import main

if __name__ == "__main__":
    main("mlp")
