"""Bad input to `up` that is the same on every cloud, and what must hold of each: one sentence, and nothing made."""

from __future__ import annotations

from dataclasses import dataclass, replace

BARE = "up --yes --ssh-from 203.0.113.7"


@dataclass
class Case:
    """A command line, the field that is wrong, words of the sentence and of the way out, the exit code.

    `UP` in the words stands for a launch that would go well on the cloud of the test.
    """

    words: str
    field: str
    says: str
    out: str
    code: int = 2

    def on(self, up):
        """Return it for a cloud where this would go well."""
        return replace(self, words=self.words.replace("UP", up))


COMMON = [
    Case(f"{BARE} --gpu v100:0", "--gpu", "'v100:0' names no GPU", "a100:8"),
    Case(f"{BARE} --gpu v1000", "--gpu", "no GPU 'v1000'", "--gpu v100"),
    Case("UP --max-price -1", "--max-price", "'-1' is not a price", "1.50"),
    Case("UP --disk 70000", "--disk", "from 1 to 65,536", "--disk 100"),
    Case("UP --disk big", "--disk", "'big' is not a size of a disk", "--disk 100"),
    Case("UP --volume data:0", "--volume", "'0' is not a size", "--volume data:200"),
    Case("UP --volume My/Data:20", "--volume", "'My/Data' cannot be a volume's name", "--volume data"),
    Case("UP --volume data", "--volume", "There is no volume 'data'", "--volume NAME:GB"),
    Case("UP --volume data:70000", "--volume", "from 1 to 65,536", "data:200"),
    Case("UP --template jupiter", "template", "did you mean 'jupyter'?", "Use one of"),
    Case("up --yes --gpu t4", "--ssh-from", "could not be found", "--ssh-from 203.0.113.7/32"),
    Case("up --yes --gpu v100 --ssh-from 0.0.0.0/0", "--ssh-from", "would let everybody", "--ssh-from-anywhere"),
    Case("up --yes --gpu v100 --ssh-from 10.0.0.0/4", "--ssh-from", "inside a network", "0.0.0.0/4"),
    Case("up --yes --gpu v100 --ssh-from 203.0.113.7/24", "--ssh-from", "inside a network", "203.0.113.0/24"),
    Case("up --yes --gpu v100 --ssh-from 2001:db8::1/128", "--ssh-from", "not an IPv4", "203.0.113.7/32"),
    Case("up --yes --gpu v100 --ssh-from ::garbage::", "--ssh-from", "not an IPv4", "203.0.113.7/32"),
    Case("up --yes --gpu v100 --ssh-from home", "--ssh-from", "'home' is not an IPv4 address", "203.0.113.7"),
    Case("UP --jump bastion:99999", "--jump", "'bastion:99999' is not a jump host", "bastion.example.org"),
    Case("UP --jump=-oProxyCommand=x", "--jump", "is not a jump host", "bastion.example.org"),
    Case("UP --or-on-demand", "--or-on-demand", "for spot machines", "Add --spot"),
    Case("up --yes --account lap", "account", "did you mean 'lab'?", "Use one of"),
    Case("UP --lease 4h --renew-until 2h", "--renew-until", "lease", "at least as long"),
]


def check(case, line, made):
    """Check that this is refused so, that no action of `made` was called, and that no machine was recorded."""
    said, called = line.calls(case.words, "-o json")
    error = said.json["error"]
    assert (said.code, error["field"]) == (case.code, case.field), error
    assert case.says in error["message"], error
    assert case.out in (error["next"] or ""), error
    assert error["message"].endswith((".", "?"))
    assert not made & set(called)
    assert line("ls --all -o json").json["machines"] == []


def named(case):
    """Return how a case is called in the list of tests."""
    return case.words.replace(BARE, "up").partition("up ")[2]
