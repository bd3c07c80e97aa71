"""Arguments, errors, signals and closed streams, the same for both commands."""

import gc
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO

from hwmodels.errors import HardwareError
from servetwin.cli.flags import OWN_FLAGS, TRACEBACK_VARIABLE, flags_behind, printing, without_flags
from serving.vocabulary.errors import PolicyError, UserError
from traces.errors import TraceError

if TYPE_CHECKING:
    from servetwin.cli.hydra_words import Translated
    from servetwin.config.config import Kind

_FLAGS: Final = ("-h", "--help")
_MARKS: Final = ("-", "+", "~", "hydra.", "hydra/")  # how words in Hydra's own notation begin
_ASKING: Final = (*_FLAGS, "help")
# Without words these print their help text: they can do nothing.
_NEED_WORDS: Final = ("plan", "advise", "sweep", "plot", "timeline", "export", "new-policy")
# These print the help text of all their subcommands (``by_verb``).
_WITH_VERBS: Final = ("profile", "traces", "reproduce")
_SHOWN: Final = {
    "cfg": "servetwin.cli.composed:print_configuration", "info": "servetwin.cli.composed:print_information"
}  # fmt: skip
_HELP: Final = Path(__file__).parent / "help"
_LONGEST_SENTENCE: Final = 1500

Command = Callable[[Sequence[str]], int]


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP as an exception, so that cleanup code runs; ``number`` is the signal's.

    Like Ctrl-C, it counts as the user's request wherever it is raised.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def as_process(command: Command) -> int:
    """Run ``command`` on this process's arguments: signals end it cleanly, any character can be printed.

    No garbage is collected until the modules of the command are loaded (``_function``).
    """
    gc.disable()
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores it
            signal.signal(number, _terminate)
    for descriptor in (0, 1, 2):
        _occupy(descriptor)
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and (out.errors == "strict" or out.encoding.lower() != "utf-8"):
        out.reconfigure(errors="backslashreplace")
    return command(sys.argv[1:])


def dispatch(words: Sequence[str], commands: Mapping[str, str], name: str) -> int:
    """Run the command of the first word; every failure is one sentence on stderr without a traceback.

    ``commands`` maps it to ``module:function``, imported when it runs. ``name``: servetwin or realexec.
    """
    try:
        return _chosen(flags_behind(words), commands, name)
    except (UserError, HardwareError, TraceError) as error:
        if isinstance(error, PolicyError):
            _trace(error)
        return _print_refusal(name, str(error), 2)
    except KeyboardInterrupt as stop:
        notes = getattr(stop, "__notes__", [])
        return _print_refusal(name, "; ".join(["stopped", *notes]), _status_of(stop))
    except ImportError as error:
        remedy = (
            "install it, or all that ServeTwin needs with: pip install servetwin (make run in a checkout)"
        )
        return _print_refusal(name, f"a package is missing or does not load ({error}): {remedy}", 2)
    except MemoryError:
        less = "write a smaller trace.limit, trace.requests or cluster"
        return _print_refusal(name, f"this run needs more memory than there is: {less}", 2)
    except OSError as error:
        return _print_refusal(name, f"{system_reason(error)}: put that right and run again", 2)
    except Exception as error:
        return _print_refusal(name, _fault(error), 3)


@contextmanager
def telling(where: str = "") -> Iterator[None]:
    """Wrap printing: a closed pipe (``| head``) is no error, a full disk is reported once.

    ``where``: appended to that error, such as where the results are.
    """
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # rich turns the first into the second
        _silence(sys.stdout)
    except OSError as error:
        _silence(sys.stdout)
        reason = os.strerror(error.errno or 0)
        raise UserError(
            f"the output could not be written ({reason}): send standard output to another place{where}"
        ) from None


def tell(
    data: Mapping[str, Any] | Sequence[Any], lines: Iterable[str], as_json: bool, where: str = ""
) -> None:
    """Print a JSON document for programs, or readable lines.

    ``where``: appended to the error if the output cannot be written, such as where the results are.
    """
    with telling(where):
        print(json.dumps(data, indent=1, ensure_ascii=False) if as_json else "\n".join(lines))


def system_reason(error: OSError) -> str:
    """Return the operating system's message and the file's name."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return reason if error.filename is None else f"{reason} ({error.filename})"


def _chosen(words: Sequence[str], commands: Mapping[str, str], name: str) -> int:
    if not words or words[0] in _ASKING:
        print_help(name)
        return 0 if words else 2
    command = words[0]
    if command == "--version":
        return _print_version(name)
    if command == "--hydra-help":
        print_help("hydra")
        return 0
    if command not in commands:
        raise UserError(f"there is no command {command!r}: write {name} {' | '.join(commands)}")
    if any(map(_may_be_hydras, words[1:])):
        from servetwin.cli.hydra_words import in_own_words

        found = in_own_words(name, command, words[1:])
        if found.show:
            return _show(found)
        command, words = found.command, [found.command, *found.words]
        if command == "--version":
            return _print_version(name)
    explains_itself = command in _WITH_VERBS or (_HELP / f"{command}.txt").is_file()
    if not explains_itself and any(word in _FLAGS for word in words[1:]):
        _print_keys(name, command, [word for word in words[1:] if word not in _FLAGS])
        return 0
    rest, quiet = without_flags(words[1:])
    with printing(quiet):
        asks = any(word in _ASKING for word in rest) or (not rest and command in _NEED_WORDS)
        if asks and explains_itself and command not in _WITH_VERBS:
            print_help(command)
            return 0 if rest else 2
        status: int = _function(commands[command])(rest)
        return status


def _may_be_hydras(word: str) -> bool:
    """Return whether a word may be in Hydra's own notation; cheap, for every word of every command."""
    if word in _FLAGS or (word in OWN_FLAGS and word != "-q"):  # a server's -q is followed by a word
        return False
    return word.startswith(_MARKS) or "@" in word.partition("=")[0]


def _print_version(name: str) -> int:
    from servetwin.config.version import code_version

    with telling():
        print(name, *(part for part in code_version().values() if part is not None))
    return 0


def _show(found: "Translated") -> int:
    """Print what Hydra's flags ask of a run that is not to run."""
    words, quiet = without_flags(found.words)
    with printing(quiet):
        if found.show == "help":
            print_help("hydra")
        else:
            _function(_SHOWN[found.show])(words, found.kind, found.part)
    return 0


def _function(place: str) -> Callable[..., Any]:
    """Import ``module:function``; from then on garbage is collected again.

    Scanning what modules make, which all stays, costs a sixth of the time to load them: it is not scanned.
    """
    module, _, name = place.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
    return function


def help_of(name: str) -> str:
    """Return the help text of a command, or of servetwin or realexec."""
    return (_HELP / f"{name}.txt").read_text(encoding="utf-8")


def print_help(name: str) -> None:
    """Print ``help_of``."""
    with telling():
        print(help_of(name), end="")


def _print_keys(name: str, command: str, keys: Sequence[str]) -> None:
    """Print the help text of ``name`` and the list of keys of a run, or only what is declared of ``keys``."""
    kind: Kind = "simulate" if command == "simulate" else "realexec"
    is_run = command in ("simulate", "run")
    if keys and is_run:
        from servetwin.config.compose.key_text import key_help

        with telling():
            print("\n".join(key_help(key, kind) for key in keys), end="")
        return
    print_help(name)
    if is_run:
        from servetwin.cli.help_text import help_text

        with telling():
            print("\n" + help_text(kind), end="")


def _print_refusal(name: str, sentence: str, status: int) -> int:
    """Print the sentence on stderr as one printable line, whatever a path contains; return ``status``."""
    line = "".join(char if char.isprintable() else repr(char)[1:-1] for char in sentence)
    if len(line) > _LONGEST_SENTENCE:
        line = f"{line[: _LONGEST_SENTENCE // 2]} ... {line[-_LONGEST_SENTENCE // 2 :]}"
    if sys.stderr is not None:
        try:
            print(f"{name}: {line}", file=sys.stderr, flush=True)
        except OSError:  # stderr is closed; the exit status is still returned
            _silence(sys.stderr)
    return status


def _occupy(descriptor: int) -> None:
    """Open /dev/null for a closed standard stream; otherwise the next file would receive its output."""
    try:
        os.fstat(descriptor)
    except OSError:
        os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one


def _status_of(stop: BaseException) -> int:
    """Return the status that a shell reports: 128 plus the signal's number."""
    return 128 + (stop.number if isinstance(stop, Terminated) else signal.SIGINT)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated(number)


def _trace(error: Exception) -> None:
    """Print the traceback if TRACEBACK_VARIABLE is set."""
    if os.environ.get(TRACEBACK_VARIABLE):
        import traceback

        traceback.print_exception(error)


def _fault(error: Exception) -> str:
    import traceback

    _trace(error)
    line = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"a fault of this program, not of yours ({type(error).__name__}: {error}, at "
        f"{Path(line.filename).name} line {line.lineno}): report it with the command you wrote, and with "
        f"what {TRACEBACK_VARIABLE}=1 in the environment shows"
    )


def _silence(stream: TextIO | None) -> None:
    """Redirect buffered output to /dev/null; otherwise the interpreter complains at exit."""
    if stream is None:
        return
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (AttributeError, OSError, ValueError):  # a stream without a file
        return
