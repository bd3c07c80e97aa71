"""``python -m servetwin``: the command ``servetwin``."""

from servetwin.cli.main import main

if __name__ == "__main__":
    main()
