"""Prints the trace `make run` should use: azure_conv when its file is found, else azure_conv_like."""

from traces.errors import TraceError
from traces.find import find_trace


def main() -> None:
    """One word on stdout."""
    try:
        find_trace("azure_conv")
    except TraceError:
        print("azure_conv_like")
    else:
        print("azure_conv")


if __name__ == "__main__":
    main()
