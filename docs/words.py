"""Words and phrases that prose here does not use, each with what to write in its place.

Patterns ignore case, and see prose without its code; a space also matches the end of a line. Keep them free of false
positives: leave out a word that plain English needs too.
"""

BANNED = {
    # Words with a meaning of their own here.
    r"\bas ever\b": "leave it out, or 'as always'",
    r"\bbeside\b": "'next to', 'with' or 'compared with'",
    r"\bcarr(?:y|ies|ied|ying)\b(?! out\b)": "'cover', 'contain', 'include' or 'send'",
    r"\bstands?\b(?! (?:for|by|out)\b|-)": "'is', 'is stored' or 'remains'",
    r"\bsettle[sd]?\b|\bsettling\b": "'resolve' or 'reconcile'",
    r"\bunsettled\b": "'unresolved' or 'uncertain'",
    r"\bsaid\b": "'stated', 'named' or 'given'; or name the actor",
    r"\bthings?\b": "name it: a resource, a step, a setting",
    r"\bof old\b|\banew\b": "'again'",
    r"\ban own\b": "'its own', 'your own' or 'a separate'",
    r"\b(?:what is|what was|the|is|are) kept by name\b": "'named volumes and images'",
    r"\bwhat (?:is|was) kept\b|\bkept things?\b": "'retained resources'",
    r"\btold\b": "'notified', or 'an alert is sent'",
    r"\bwish(?:es|ed)?\b": "'option', 'request' or 'requirement'",
    r"\bdear(?:er|est)\b": "'more expensive', 'most expensive'",
    r"\b(?:by|at) (?:your|his|their|whose|the user's) words?\b": "name the command or the option that does it",
    r"\bthat you say\b": "'that you give'",
    r"\bgo(?:es)? on\b|\bwent on\b|\bgoing on\b": "'continue', 'keep running'",
    r"\bli(?:es|e)\b(?! in wait)": "'is', 'are', 'is stored'",
    r"\bjudge[sd]?\b|\bjudging\b": "'evaluate', 'check'",
    r"\bspared\b": "'skipped'",
    r"\bheard (?:of|from|here)\b": "'last report'",
    r"\bleft over\b|\bleft-over\b|\bleftovers?\b": "'orphaned', or name the resource",
    r"\bstrays?\b": "'machines that the ledger does not know'",
    r"\b(?:a|one|each|every|the|next|last|latest|first|any) pass(?:es)?\b": "'a run' (of reap)",
    r"\bpasses (?:by themselves|that end|over)\b": "'runs' (of reap)",
    r"\bin their place the\b": "name the option and what it does",
    # Word order and grammar of other languages.
    r"(?<!there)\W\bis no (?!longer\b|more\b|one\b|different\b)": "'is not a ...', 'is not a valid ...'",
    r"(?<!thing)(?<!one)(?<!body)(?<!what)(?<!where)(?<!who)(?<!or)\W\belse[.;]": "'otherwise', or 'if not'",
    r"\b(?:where|there)(?:of|in|by|upon|to)\b|\bhere(?:with|by|of)\b": "plain words: 'of it', 'in it'",
    r"\b(?:prices?|clouds?|accounts?|providers?|regions?) (?:is|are|was|were) asked\b": "'queried'",
    r"\basks? (?:the |its |every |all |each )?(?:cloud|provider|account|price list)s?\b(?! (?:for|to)\b)": "'query'",
    r"\basked no more\b": "'no longer queried'",
    r"\bnot tried yet\b|\b(?:has|have) not met\b": "'not tested'",
    r"\bmend(?:s|ed)?\b": "'fix', 'repair'",
    r"\b(?:quiet|silent) else\b": "'silent otherwise'",
    r"\bfar side\b": "'the remote end', 'the server'",
    r"\bgrounds\b": "'reasons', 'sources'",
    # One spelling.
    r"(?-i:(?<!/)\bcatalogs?\b)": "'catalogue'",
    r"\bcolor(?:s|ed|ful)?\b": "'colour'",
    r"(?<!Apache )(?-i:\b[Ll]icenses?)\b": "'licence' (the noun)",
    r"\bbehaviors?\b": "'behaviour'",
    r"(?-i:\bcenter(?:s|ed)?\b)": "'centre'",
    r"\bcanceling\b": "'cancelling'",
    r"\blabeled\b|\bmodeled\b|\btraveled\b": "double the l",
}
# Words that codespell would report and that are right.
CORRECT = ("ans", "te", "nd", "fo")
