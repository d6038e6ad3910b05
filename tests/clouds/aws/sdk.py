"""Has botocore and moto keep what they make of data files: they are as published, but not made a thousand times.

A session reads the description of a service, and a client makes a class of it with a method for each of its operations:
of a command on AWS that was half of the time. Both depend on nothing but the files, so a process does them once.
"""

from __future__ import annotations

from typing import Any


def keep_models() -> None:
    """Keep, in this process, each data file as it was read, and the class of each service's clients."""
    from botocore import hooks
    from botocore.client import ClientCreator
    from botocore.loaders import JSONFileLoader

    if hasattr(JSONFileLoader, "kept"):
        return
    read, make = JSONFileLoader.load_file, ClientCreator._create_client_class
    files, classes = dict[str, Any](), dict[tuple[str, int], Any]()

    def load_file(self: JSONFileLoader, path: str) -> Any:
        if path not in files:
            files[path] = read(self, path)
        return files[path]

    def create_client_class(self: ClientCreator, name: str, model: Any) -> Any:
        key = name, len(model.operation_names)  # ours have fewer than those of plain boto3
        if key not in classes:
            classes[key] = make(self, name, model)
        return classes[key]

    JSONFileLoader.kept = files
    JSONFileLoader.load_file = load_file
    ClientCreator._create_client_class = create_client_class
    _keep_names_of_events(hooks)


def _keep_names_of_events(hooks: Any) -> None:
    """Keep what each event is called, and which functions may hear of it: each session and each client asked anew.

    A third of what it took to make one went there. The names depend on a table of botocore's, which stays.
    """
    names, makes, asks, takes = dict[str, str](), hooks.EventAliaser.__init__, hooks.accepts_kwargs, dict[Any, Any]()

    def made(self: Any, *args: Any, **more: Any) -> None:
        makes(self, *args, **more)
        if self._event_aliases == hooks.EVENT_ALIASES:
            self._alias_name_cache = names

    def accepts_kwargs(function: Any) -> Any:
        code = getattr(function, "__code__", None)
        if code is None:
            return asks(function)
        if code not in takes:
            takes[code] = asks(function)
        return takes[code]

    hooks.EventAliaser.__init__ = made
    hooks.accepts_kwargs = accepts_kwargs


def keep_keys() -> None:
    """Keep, in this process, under which names moto looks for a member of an answer: a tenth of its time went there.

    They depend on the member, its structure and the class of what moto has, and on nothing that a test changes.
    """
    from moto.core.serialize import AttributePickerContext, XFormedAttributePicker

    if hasattr(XFormedAttributePicker, "kept"):
        return
    look, kept = XFormedAttributePicker.get_possible_keys, dict[Any, list[str]]()

    def get_possible_keys(self: XFormedAttributePicker, context: AttributePickerContext) -> list[str]:
        shape, service = context.shape, context.service_model
        around = getattr(shape, "parent", None)
        place = (
            service and service.service_name, around and around.name, context.key, shape and shape.name,
            type(context.obj),
        )  # fmt: skip
        if place not in kept:
            kept[place] = list(dict.fromkeys(look(self, context)))
        return kept[place]

    XFormedAttributePicker.kept = kept
    XFormedAttributePicker.get_possible_keys = get_possible_keys
