# make build   compiles soybean_mx/libsoybean_mx.so with the .venv's MXNet
VENV := .venv

.PHONY: build
build:
	cmake -S . -B build -DPython3_EXECUTABLE=$(CURDIR)/$(VENV)/bin/python
	cmake --build build -j 2
