"""Hides the package of this name from the whole suite: jsonschema does without it, and it takes two seconds to import.

It builds 38 grammars at once. JupyterLab's servers, the model of Azure and every test process would each pay for them,
and none ever asks whether an IRI is well formed.
"""

raise ImportError("Hidden by the tests: see tests/guard/rfc3987_syntax.py.")
