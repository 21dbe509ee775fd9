"""``python -m lowtide.service``: started by the driver plugin, ends when its standard input closes."""

from lowtide.service.server import main

if __name__ == "__main__":
    main()
