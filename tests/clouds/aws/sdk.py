"""Has botocore and moto keep what they make of data files: they are as published, but not made a thousand times.

A session reads the description of a service, and a client makes a class of it with a method for each of its operations:
of a command on AWS that was half of the time. Both depend on nothing but the files, so a process does them once.
"""

from __future__ import annotations

from typing import Any


def keep_models() -> None:
    """Keep, in this process, each data file as it was read, and the class of each service's clients."""
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
