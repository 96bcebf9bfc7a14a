"""Runs a Skillware skill: /skill/skill.py, a class with execute(params) or aexecute(params).

skillbox places this file at /run/skillbox and runs it inside the box, with the rights of the skill and no others. The import below loads
skill.py, as a Skillware host does before there is a call; in a preloaded box that was done when the call comes.
"""

import sys

import skillbox_skillware

if __name__ == "__main__":
    sys.exit(skillbox_skillware.main())
