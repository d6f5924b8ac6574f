"""Train a VGG network; with no argument, a narrow VGG-11 with BatchNorm on handwritten digits, on two CPU contexts."""
from classification import main

if __name__ == "__main__":
    main("vgg11_bn")
