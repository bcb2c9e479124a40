"""python -m superfeat"""

from superfeat.cli import main

main()
