"""``python -m servetwin``: the command ``servetwin``."""

from experiments.cli import main

if __name__ == "__main__":
    main()
