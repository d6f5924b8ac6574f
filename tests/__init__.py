"""The tests. Importing them first lets soybean_mx see MXNet's import, as a program with ``SOYBEAN_MX=1`` does."""
import soybean_mx  # noqa: F401
