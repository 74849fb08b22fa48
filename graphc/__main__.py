"""`python -m graphc` is the command line."""

from graphc.cli import main

if __name__ == "__main__":
    main()
