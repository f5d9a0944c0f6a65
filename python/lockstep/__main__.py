"""`python -m lockstep`: the command line of this Python's Lockstep."""

from lockstep.cli.main import main

main(prog_name="lockstep")
