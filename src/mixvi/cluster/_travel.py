"""What travels to workers: a user's functions, as bytes by which they are known again.

Compiled code is found by the function that it was made of. One that is unpickled is another one
every time, so that each fit would compile anew on every worker; here the same bytes are the same
function.
"""

import collections
import hashlib
import io
import pickle
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from .._density._captured import _Captured
from .._errors import InputError

FUNCTIONS_KEPT = 64


class Packed(NamedTuple):
    """Bytes, and a name that is theirs."""

    name: str
    text: bytes


def packed(thing: Any, what: str) -> Packed:
    """`what`: its name in sentences."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, _Captured):
                return function_of, (cloudpickle.dumps(obj.function),)
            return super().reducer_override(obj)

    file = io.BytesIO()
    try:
        Pickler(file).dump(thing)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError) as err:
        raise InputError(
            f"cluster: {what} cannot be sent to the workers: something that it holds cannot be "
            f"pickled ({str(err).splitlines()[0]}). Open files, locks and connections stay here: "
            "make them inside the function, or leave them out."
        ) from err
    text = file.getvalue()
    return Packed(hashlib.blake2b(text, digest_size=16).hexdigest(), text)


def unpacked(one: Packed) -> Any:
    """On a worker."""
    try:
        return pickle.loads(one.text)
    except (ImportError, AttributeError) as err:
        raise InputError(
            f"cluster: a worker cannot make what was sent to it ({err}): what your functions "
            "import must be importable there, too. Install it on the workers, send a file with "
            "client.upload_file, or write the function in the script itself."
        ) from err


def called(one: Packed) -> Any:
    """What the function comes to that was packed."""
    return unpacked(one)()


class Kept:
    """The last things made, by name; each is made once, whoever asks."""

    def __init__(self, most: int):
        self.most, self.lock = most, threading.RLock()
        self.things: collections.OrderedDict[str, Any] = collections.OrderedDict()

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        with self.lock:
            if name not in self.things:
                self.things[name] = make()
                while len(self.things) > self.most:
                    self.things.popitem(last=False)
            self.things.move_to_end(name)
            return self.things[name]


_functions = Kept(FUNCTIONS_KEPT)


def function_of(text: bytes) -> _Captured:
    """The function of these bytes, with what it captures: the same object every time."""
    name = hashlib.blake2b(text, digest_size=16).hexdigest()
    return _functions.get(name, lambda: _Captured.of(pickle.loads(text)))
