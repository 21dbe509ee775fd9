import pickle

from lowtide import errors
from lowtide.errors import LowtideError, PortTaken, UserCodeFailed


def test_an_error_says_what_where_and_what_to_do() -> None:
    error = PortTaken("port 9092 is taken", where="embedded.kafka_port", way_out="set another one")
    assert str(error) == "port 9092 is taken\n  where: embedded.kafka_port\n  what to do: set another one"


def test_an_error_survives_the_way_to_another_process() -> None:
    error = UserCodeFailed("it raised", where="map `up`", way_out="mend it", details="Traceback …\n")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is UserCodeFailed
    assert str(copy) == str(error)
    assert str(copy).endswith("\n\nTraceback …")


def test_every_error_has_a_base_an_exit_code_and_a_docstring() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        assert issubclass(kind, LowtideError)
        assert kind.exit_code in {1, 2, 3, 4, 5, 6}
        assert kind.__doc__
    assert LowtideError.exit_code == 1
