"""Scenarios that all share one takeover: what each does before it, and what it checks afterwards."""

from collections.abc import Callable, Generator, Iterator

from .pair import BrokerPair

#: Runs up to its ``yield`` before the takeover, and from there after it.
Scenario = Callable[[BrokerPair], Iterator[None]]


class Scenarios(dict[str, Scenario]):
    """Scenarios by their names; a decorator adds one."""

    def __call__(self, function):
        self[function.__name__] = function
        return function


def selected(request, scenarios):
    """Those with a test in this run."""
    items = [item for item in request.session.items if item.path == request.path]
    names = {item.callspec.params.get("name") for item in items if hasattr(item, "callspec")}
    return {name: scenario for name, scenario in scenarios.items() if name in names}


class Takeover:
    """Begins all scenarios, ends the active broker (`BrokerPair.take_over`), and lets each test finish its own."""

    def __init__(self, pair, scenarios, how="kill"):
        self._begun = {}
        for name, scenario in scenarios.items():
            running = scenario(pair)
            try:
                next(running)
                self._begun[name] = running
            except BaseException as error:  # its own test reports it: pytest.skip and failures alike
                if isinstance(error, KeyboardInterrupt | SystemExit):
                    raise
                self._begun[name] = error
        pair.take_over(how)

    def finish(self, name):
        """What comes after the takeover. Raises what the first part raised."""
        begun = self._begun[name]
        if isinstance(begun, BaseException):
            raise begun
        assert next(begun, None) is None
        for _ in begun:
            raise AssertionError(f"{name} waits for a second takeover")

    def close(self):
        """End what a test has not finished: programs, for one."""
        for begun in self._begun.values():
            if isinstance(begun, Generator):
                begun.close()
