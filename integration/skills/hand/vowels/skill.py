from skillware.core.base_skill import BaseSkill


class Vowels(BaseSkill):
    @property
    def manifest(self):
        return {"name": "text/vowels"}

    def execute(self, params):
        return {"vowels": sum(c in "aeiou" for c in params["text"].lower())}
