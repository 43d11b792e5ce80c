"""What Python checks and times on a machine with a GPU: `python3 checks.py [torch] GROUP…`.

Every check is one line, `ok NAME FIGURES` or `FAIL NAME WHY`. `torch` imports PyTorch before Arenite. Times are
medians in microseconds unless they say otherwise. Deliberately absent: any need for PyTorch or CuPy; what uses
them is left out where they are not.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

if "torch" in sys.argv[1:]:
    import torch  # noqa: F401

import numpy as np

import arenite

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
# The largest difference to eager PyTorch.
BOUNDS = {
    "seed_net": 0.0, "seed_net_dyn": 0.0, "two_out": 0.0, "seed_net_bf16": 0.0, "kv": 0.0, "resident_net": 0.0,
    "two_methods": 1e-6, "mlp": 1e-6, "norm": 1e-6, "conv": 1e-6, "deep_norm": 1e-5,
}  # fmt: skip
TIMED = ["seed_net", "seed_net_dyn", "two_out", "seed_net_bf16", "mlp", "norm", "kv", "conv", "deep_norm"]
RUNS = 2000
failures = 0


def check(name: str, work: Callable[[], object]) -> None:
    """Runs `work`; what it gives are the figures."""
    global failures
    try:
        figures = work()
    except BaseException as error:
        failures += 1
        print(f"FAIL {name} {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
        traceback.print_exc()
        return
    print(f"ok {name} {'' if figures is None else figures}".rstrip(), flush=True)


def expect(truth: object, text: str) -> None:
    """Fails the check unless it holds."""
    if not truth:
        raise AssertionError(text)


def there() -> Iterator[str]:
    """The names of the programs in the bundle."""
    return (name for name in BOUNDS if (PROGRAMS / f"{name}.pte").exists())


def program(name: str) -> arenite.Program:
    """A program, opened anew."""
    data = PROGRAMS / f"{name}.ptd"
    return arenite.Runtime.get().load_program(PROGRAMS / f"{name}.pte", data_path=data if data.exists() else None)


def arrays(name: str, method: str, kind: str) -> list[np.ndarray]:
    """The stored inputs or outputs of eager PyTorch."""
    with np.load(PROGRAMS / f"{name}.npz") as stored:
        for prefix in (f"{method}.{kind}", kind):
            found = [stored[f"{prefix}{index}"] for index in range(32) if f"{prefix}{index}" in stored]
            if found:
                return found
    return []


def given(name: str, method: str) -> list[Any]:
    """Inputs in the kind that the program wants; bfloat16 is stored as float32."""
    inputs = arrays(name, method, "in")
    if not name.endswith("bf16"):
        return inputs
    return [bfloat16(array) for array in inputs]


def bfloat16(array: np.ndarray) -> Any:
    """A bfloat16 tensor with these values."""
    try:
        import ml_dtypes

        return array.astype(ml_dtypes.bfloat16)
    except ImportError:
        import torch

        return torch.from_numpy(array).to(torch.bfloat16)


def floats(output: Any) -> np.ndarray:
    """An output as float32."""
    if type(output).__module__.startswith("torch"):
        return output.detach().float().cpu().numpy()
    array = np.asarray(output)
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def error_of(outputs: list[Any], wanted: list[np.ndarray]) -> float:
    """The largest difference."""
    expect(len(outputs) == len(wanted), f"{len(outputs)} outputs, expected {len(wanted)}")
    worst = 0.0
    for got, want in zip(outputs, wanted, strict=True):
        got, want = floats(got), np.asarray(want)
        if want.dtype == np.uint16:
            want = floats(want)
        expect(got.shape == want.shape, f"shape {got.shape}, expected {want.shape}")
        worst = max(worst, float(np.max(np.abs(got - want.astype(np.float32)), initial=0.0)))
    return worst


def median(call: Callable[[], object], runs: int = RUNS, warm: int = 100) -> float:
    """The median time of a call, in microseconds."""
    for _ in range(warm):
        call()
    clock, times = time.perf_counter_ns, []
    for _ in range(runs):
        start = clock()
        call()
        times.append(clock() - start)
    times.sort()
    return times[len(times) // 2] / 1e3


def timable(name: str) -> bool:
    """Whether its inputs can be made here."""
    try:
        given(name, "forward")
    except ImportError:
        return False
    return True


def exact() -> None:
    """Every program, all in one process, in one order and the other, eager and captured."""
    loaded = []
    for name in there():
        if not timable(name):
            continue
        opened = program(name)
        for method in sorted(opened.method_names):
            loaded.append((name, method, opened.load_method(method)))

    def run(name: str, method: str, ready: arenite.Method) -> float:
        error = error_of(ready.execute(given(name, method)), arrays(name, method, "out"))
        expect(error <= BOUNDS[name], f"error {error:.3g}, at most {BOUNDS[name]:.3g}")
        return error

    order = loaded
    for turn in ("eager", "eager_again", "captured"):
        for name, method, ready in order:

            def work(name: str = name, method: str = method, ready: arenite.Method = ready) -> str:
                if turn != "captured":
                    return f"error {max(run(name, method, ready) for _ in range(3)):.3g}"
                try:
                    ready.capture()
                except arenite.Error as error:
                    expect(name == "resident_net", str(error))
                    return "refused, as it should be: its ends have no planned memory"
                error = max(run(name, method, ready) for _ in range(6))
                expect(ready.is_captured, "no graph was recorded")
                return f"error {error:.3g}"

            check(f"{turn}_{name}.{method}", work)
        order = order[::-1]


def snippet() -> None:
    """The snippet of ExecuTorch's documentation with its import changed."""

    def work() -> str:
        from arenite import Runtime

        runtime = Runtime.get()
        program = runtime.load_program(str(PROGRAMS / "seed_net.pte"))
        method = program.load_method("forward")
        outputs = method.execute(arrays("seed_net", "forward", "in"))
        error = error_of(outputs, arrays("seed_net", "forward", "out"))
        expect(error == 0.0, f"error {error}")
        return f"error {error}"

    check("snippet", work)


def report() -> None:
    """The memory report of the seed program."""

    def work() -> str:
        method = program("seed_net").load_method("forward")
        text = str(method.memory_report())
        print(text)
        sizes = {arena.space: arena.bytes for arena in method.arenas}
        expect(sizes == {"host": 512, "cuda:0": 768}, f"arenas {sizes}")
        return str(sizes)

    check("memory_report", work)


def frameworks() -> Iterator[tuple[str, Any, Callable[[np.ndarray], Any], Callable[[], None]]]:
    """Those that make device tensors: name, module, how, and how to wait."""
    try:
        import torch

        if torch.cuda.is_available():
            yield "torch", torch, lambda array: torch.from_numpy(array).cuda(), torch.cuda.synchronize
    except ImportError:
        pass
    try:
        import cupy

        yield "cupy", cupy, cupy.asarray, lambda: cupy.cuda.Device(0).synchronize()
    except ImportError:
        pass


def resident() -> Any:
    """The program whose inputs and outputs stay on the device, loaded; and its arrays."""
    method = program("resident_net").load_method("forward")
    return method, arrays("resident_net", "forward", "in"), arrays("resident_net", "forward", "out")


def own_tensors() -> None:
    """Arenite's own tensors to a device and back, without another framework."""
    if not (PROGRAMS / "resident_net.pte").exists():
        return

    def there_and_back() -> None:
        array = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
        on_device = arenite.Tensor(array).copy_to("cuda:0")
        expect(on_device.space == "cuda:0" and on_device.__dlpack_device__() == (2, 0), repr(on_device))
        expect(np.array_equal(on_device.numpy(), array), "other elements came back")
        expect(np.array_equal(on_device.copy_to("host").numpy(), array), "other elements came back")

    def stays() -> str:
        method, inputs, wanted = resident()
        tensors = [arenite.Tensor(array).copy_to("cuda:0") for array in inputs]
        kept = []
        for _ in range(300):
            (output,) = method.execute(tensors)
            expect(isinstance(output, arenite.Tensor) and output.space == "cuda:0", repr(output))
            kept = (kept + [output])[-5:]
        worst = max(error_of([output.numpy()], wanted) for output in kept)
        expect(worst == 0.0, f"error {worst}")
        # An output goes in again: relu(x * y + x) * 2 of the output and the second input.
        (again,) = method.execute([kept[0], tensors[1]])
        x, y = wanted[0], inputs[1]
        expect(np.allclose(again.numpy(), np.maximum(x * y + x, 0) * 2, rtol=1e-6), "a chained run")
        return repr(output)

    def not_captured() -> str:
        try:
            resident()[0].capture()
        except arenite.Error as error:
            return " ".join(str(error).split())
        raise AssertionError("it was captured")

    def host_inputs() -> str:
        method, inputs, wanted = resident()
        outputs = method.execute(inputs)
        expect(error_of(outputs, wanted) == 0.0, "host arrays in")
        return type(outputs[0]).__name__

    check("own_tensors_there_and_back", there_and_back)
    check("own_tensors_stay", stays)
    check("resident_is_not_captured", not_captured)
    check("resident_host_arrays", host_inputs)


def streams() -> None:
    """Work in the order of PyTorch's streams, never waited for in between."""
    try:
        import torch
    except ImportError:
        print("no PyTorch: not run")
        return
    if not torch.cuda.is_available() or not (PROGRAMS / "resident_net.pte").exists():
        return

    def chain(side: bool, named: bool) -> str:
        method, inputs, _ = resident()
        first, second = (torch.from_numpy(array).cuda() for array in inputs)
        reference = first.clone()
        stream = torch.cuda.Stream() if side else torch.cuda.current_stream()
        torch.cuda.synchronize()
        x = first
        with torch.cuda.stream(stream):
            big = torch.randn(2048, 2048, device="cuda")
            for _ in range(200):
                big = big @ big * 1e-3  # keeps the device behind the host
                y = second + 0.0
                (x,) = method.execute([x, y], stream=stream if named else None)
                x = x / (x.abs().max() + 1)
        stream.synchronize()
        for _ in range(200):
            reference = torch.relu(reference * second + reference) * 2
            reference = reference / (reference.abs().max() + 1)
        torch.cuda.synchronize()
        error = float((reference - x).abs().max() / (reference.abs().max() + 1e-20))
        expect(x.is_cuda and error < 1e-4, f"error {error}")
        return f"relative error {error:.2g}, {type(x).__name__} on {x.device}"

    for side in (False, True):
        for named in (False, True):
            where = "side" if side else "default"
            check(f"stream_{where}_{'named' if named else 'current'}", lambda side=side, named=named: chain(side, named))

    def given_away() -> str:
        method, inputs, wanted = resident()
        tensors = [torch.from_numpy(array).cuda() for array in inputs]
        (output,) = method.execute(tensors)
        del method
        torch.cuda.synchronize()
        expect(float((output.cpu() - torch.from_numpy(wanted[0])).abs().max()) == 0.0, "after the method is gone")
        ours = arenite.Tensor(inputs[0]).copy_to("cuda:0")
        theirs = torch.from_dlpack(ours)
        del ours
        expect(theirs.is_cuda and np.array_equal(theirs.cpu().numpy(), inputs[0]), "torch.from_dlpack")
        return str(theirs.device)

    check("outlives_its_method", given_away)

    def negated() -> str:
        method, inputs, _ = resident()
        x, y = (torch.from_numpy(array).cuda() for array in inputs)
        views = {"negated": torch._neg_view(x), "imag": torch.complex(y, x).conj().imag}
        (wanted,) = method.execute([-x, y])
        for name, view in views.items():
            expect(view.is_neg(), f"{name}: no view that says that its numbers are negated")
            (got,) = method.execute([view, y])
            expect(torch.equal(got, wanted), name)
        return ", ".join(views)

    check("views_that_negate", negated)


def device_tensors() -> None:
    """Device tensors in, host or device tensors out."""
    own_tensors()
    streams()
    for name, module, to_device, wait in frameworks():
        for which in ("seed_net", "mlp", "resident_net"):
            if not (PROGRAMS / f"{which}.pte").exists():
                continue

            def work(which: str = which) -> str:
                method = program(which).load_method("forward")
                inputs = [to_device(array) for array in arrays(which, "forward", "in")]
                worst = 0.0
                for _ in range(4):
                    outputs = method.execute(inputs)
                    wait()
                    worst = max(worst, error_of([as_host(output) for output in outputs], arrays(which, "forward", "out")))
                expect(worst <= BOUNDS[which], f"error {worst}")
                kinds = ", ".join(f"{type(output).__module__}.{type(output).__name__}" for output in outputs)
                return f"error {worst:.3g}, out {kinds}"

            check(f"device_in_{name}_{which}", work)


def as_host(output: Any) -> np.ndarray:
    """A tensor of any framework, on the host."""
    if isinstance(output, arenite.Tensor):
        return output.numpy()
    if hasattr(output, "get") and type(output).__module__.startswith("cupy"):
        return output.get()
    return floats(output)


def refusals() -> None:
    """What cannot be loaded is an error with a reason, and the next program runs."""

    def refused(name: str, load: Callable[[], object], *mentions: str) -> None:
        def work() -> str:
            try:
                load()
            except arenite.Error as error:
                text = str(error)
                expect(all(word in text for word in mentions), f"{text!r} lacks one of {mentions}")
                return f"{type(error).__name__}: {' '.join(text.split())[:160]}"
            raise AssertionError("it was accepted")

        check(name, work)

    seed = (PROGRAMS / "seed_net.pte").read_bytes()
    open_ = arenite.Runtime.get().load_program
    at = seed.find(b"\x7fELF")
    broken = bytearray(seed)
    broken[at + 5000] ^= 1
    refused("refused_changed_code", lambda: open_(bytes(broken)).load_method("forward"), "SHA-256")
    digest = next(entry["key"] for entry in open_(seed).inspect()["named_data"] if entry["key"].endswith("_so_blob"))[:64]
    rule = lambda native_code: open_(seed, native_code=native_code).load_method("forward")  # noqa: E731
    refused("refused_native_code", lambda: rule("deny"), digest)
    refused("refused_code_not_listed", lambda: rule(["0" * 64]), digest)
    check("allowed_code_listed", lambda: rule(["0" * 64, digest]).name)
    remap = lambda to: open_(seed).load_method("forward", arenas={"cuda:0": to})  # noqa: E731
    refused("refused_device_9", lambda: remap("cuda:9"), "cuda:9")
    refused("refused_on_host", lambda: remap("host"), "CudaBackend")
    small = arenite.ArenaSet(cuda=arenite.Cuda(0, limit=767))
    refused("refused_limit", lambda: open_(seed).load_method("forward", arenas=small), "767")
    if (PROGRAMS / "mlp.pte").exists():
        mlp = lambda data: open_(PROGRAMS / "mlp.pte", data_path=data).load_method("forward")  # noqa: E731
        refused("refused_without_data", lambda: mlp(None), ".ptd")
        refused("refused_wrong_data", lambda: mlp(PROGRAMS / "norm.ptd"))
    check("after_refusals", lambda: program("seed_net").load_method("forward").execute(given("seed_net", "forward")) and None)


def child(code: str, status: int = 0) -> str:
    """Runs Python in a process of its own."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120, check=False)
    expect(done.returncode == status, f"ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
    expect(not done.stderr.strip(), f"said {done.stderr.strip()[-300:]}")
    return done.stdout.strip()


SETUP = f"""
import os, sys, numpy as np, arenite
inputs = list(np.load({str(PROGRAMS / "seed_net.npz")!r}).values())[:2]
method = arenite.load({str(PROGRAMS / "seed_net.pte")!r})
method.execute(inputs)
"""


def processes() -> None:
    """Exit with everything alive, a fork after use, threads."""
    check("exit_with_a_method_alive", lambda: child(SETUP + "sys.modules['keep'] = method"))
    check("exit_inside_a_thread", lambda: child(SETUP + "import threading; t = threading.Thread(target=lambda: [method.execute(inputs) for _ in range(2000)], daemon=True); t.start()"))
    fork = """
pid = os.fork()
if pid == 0:
    try:
        method.execute(inputs)
        os._exit(1)
    except arenite.Error as error:
        os._exit(0 if "fork" in str(error) else 2)
status = os.waitpid(pid, 0)[1]
method.execute(inputs)
assert os.waitstatus_to_exitcode(status) == 0, status
pid = os.fork()
if pid == 0:
    del method
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
method.execute(inputs)
"""
    check("fork_after_use", lambda: child(SETUP + fork))
    before = "import os\npid = os.fork()\n" + SETUP + "if pid: assert os.waitpid(pid, 0)[1] == 0"
    check("fork_before_use", lambda: child(before))

    def threads() -> str:
        from concurrent.futures import ThreadPoolExecutor

        inputs, wanted = given("seed_net", "forward"), arrays("seed_net", "forward", "out")
        sets = [arenite.ArenaSet() for _ in range(4)]
        methods = [program("seed_net").load_method("forward", arenas=own) for own in sets]
        run = lambda index: max(error_of(methods[index].execute(inputs), wanted) for _ in range(500))  # noqa: E731
        with ThreadPoolExecutor(4) as pool:
            worst = max(pool.map(run, [0, 1, 2, 3, 0, 0, 1, 1]))
        expect(worst == 0.0, f"error {worst}")
        return f"error {worst}"

    check("four_methods_eight_threads", threads)


def two_devices() -> None:
    """Two methods on two devices at once."""
    second = arenite.Runtime.get().spaces.get("cuda:1")
    if second is None or not second.available:
        print("one device only: not run")
        return

    def work() -> str:
        from concurrent.futures import ThreadPoolExecutor

        opened, inputs = program("seed_net"), given("seed_net", "forward")
        wanted = arrays("seed_net", "forward", "out")
        first = opened.load_method("forward")
        second = opened.load_method("forward", arenas={"cuda:0": "cuda:1"})
        spaces = [{arena.space for arena in method.arenas} for method in (first, second)]
        expect(spaces == [{"host", "cuda:0"}, {"host", "cuda:1"}], f"spaces {spaces}")
        run = lambda method: max(error_of(method.execute(inputs), wanted) for _ in range(1000))  # noqa: E731
        with ThreadPoolExecutor(2) as pool:
            worst = max(pool.map(run, [first, second, second, first]))
        expect(worst == 0.0, f"error {worst}")
        return f"error {worst}, {median(lambda: first.execute(inputs)):.1f} and {median(lambda: second.execute(inputs)):.1f} us"

    check("two_devices_at_once", work)
    for name in ("mlp", "kv", "deep_norm"):
        if (PROGRAMS / f"{name}.pte").exists():

            def other(name: str = name) -> str:
                method = program(name).load_method("forward", arenas={"cuda:0": "cuda:1"})
                error = error_of(method.execute(given(name, "forward")), arrays(name, "forward", "out"))
                expect(error <= BOUNDS[name], f"error {error}")
                return f"error {error:.3g}"

            check(f"on_cuda_1_{name}", other)


def cases() -> None:
    """The trial cases that want a GPU, where they were bundled."""
    folder = pathlib.Path(__file__).resolve().parent / "cases"
    if not folder.is_dir():
        print("no cases in this bundle")
        return

    def run(*words: str) -> str:
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=240, check=False)
        print("\n".join("  " + line for line in (done.stdout + done.stderr).splitlines()))
        lines = done.stdout.strip().splitlines()
        bad = [line for line in lines if "FAIL" in line or " bad" in line]
        expect(done.returncode == 0 and lines and not bad, f"ended with {done.returncode}: {(bad or lines or [done.stderr])[-1]}")
        return lines[-1]

    for case in sorted(folder.glob("h*.json")):
        check(f"case_{case.stem}", lambda case=case: run(str(folder / "replay.py"), "arenite", str(case)))
    for script in sorted(folder.glob("seq_*.py")):
        check(f"case_{script.stem}", lambda script=script: run(str(script), "arenite"))


def rss_kib() -> int:
    """Resident memory of this process."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def cycles() -> None:
    """1,000 times load, execute, drop: nothing of ours is left."""
    for name in ("seed_net", "mlp"):
        if not (PROGRAMS / f"{name}.pte").exists():
            continue

        def work(name: str = name) -> str:
            inputs = given(name, "forward")

            def cycle() -> None:
                program(name).load_method("forward").execute(inputs)

            for _ in range(20):
                cycle()
            free = arenite.Runtime.get().spaces["cuda:0"].free
            marks = [rss_kib()]
            for index in range(1000):
                cycle()
                if index % 250 == 249:
                    marks.append(rss_kib())
            stats = {space: entry["current_bytes"] for space, entry in arenite.memory_stats().items()}
            after = arenite.Runtime.get().spaces["cuda:0"].free
            descriptors = len(os.listdir("/proc/self/fd"))
            grown = [later - earlier for earlier, later in zip(marks, marks[1:], strict=False)]
            text = f"arenas {stats}, device free {free} to {after}, resident +{grown} KiB, {descriptors} descriptors"
            expect(not any(stats.values()), text)
            return text

        check(f"cycles_{name}", work)


def loads() -> None:
    """Loading: the first of a process after the context exists, and later ones; milliseconds."""
    code = """
import sys, time
if {torch}: import torch; torch.cuda.init(); torch.zeros(1).cuda()
import numpy, arenite
space = arenite.Runtime.get().spaces["cuda:0"]
start = time.perf_counter(); space.free; context = time.perf_counter() - start
numpy.dtype("float32")
times = []
for index in range(41):
    start = time.perf_counter()
    method = arenite.Runtime.get().load_program({pte!r}, data_path={ptd!r}).load_method("forward")
    times.append(time.perf_counter() - start)
    if index == 0:
        inputs = list(numpy.load({npz!r}).values())[: {inputs}]
        start = time.perf_counter(); method.execute(inputs); first = time.perf_counter() - start
    del method
later = sorted(times[1:])
print(f"context {{context * 1e3:.1f}}, first load {{times[0] * 1e3:.2f}}, first run {{first * 1e3:.2f}}, later {{later[len(later) // 2] * 1e3:.3f}} ms")
"""
    for name in ("seed_net", "mlp", "deep_norm"):
        if not (PROGRAMS / f"{name}.pte").exists():
            continue
        data = PROGRAMS / f"{name}.ptd"
        options = {
            "pte": str(PROGRAMS / f"{name}.pte"), "ptd": str(data) if data.exists() else None,
            "npz": str(PROGRAMS / f"{name}.npz"), "inputs": len(arrays(name, "forward", "in")),
        }  # fmt: skip
        check(f"load_{name}", lambda options=options: child(code.format(torch=False, **options)))


def times() -> None:
    """Host arrays in, host arrays out: eager and as a graph."""
    for name in TIMED:
        if not (PROGRAMS / f"{name}.pte").exists() or not timable(name):
            continue

        def work(name: str = name) -> str:
            inputs, opened = given(name, "forward"), program(name)
            methods = [opened.load_method("forward", graph=graph) for graph in (False, True)]
            # In turn, since the machine's own moods last for milliseconds.
            turns = [[median(lambda: method.execute(inputs), RUNS // 5, 50) for method in methods] for _ in range(5)]
            for method in methods:
                error = error_of(method.execute(inputs), arrays(name, "forward", "out"))
                expect(error <= BOUNDS[name], f"error {error}")
            recorded = [method.is_captured for method in methods]
            expect(recorded == [False, True], f"recorded as graphs: {recorded}")
            kinds = zip(("eager", "graph"), zip(*turns, strict=True), strict=True)
            ranges = [(kind, sorted(times)) for kind, times in kinds]
            return ", ".join(f"{kind} {own[2]:.1f} us ({own[0]:.1f} to {own[4]:.1f})" for kind, own in ranges)

        check(f"time_{name}", work)


def peers() -> None:
    """PyTorch's own eager time beside, and device tensors in and out."""
    try:
        import torch
    except ImportError:
        print("no PyTorch: not run")
        return
    x, y = (torch.from_numpy(array) for array in arrays("seed_net", "forward", "in"))
    run = lambda a, b: torch.relu(a * b + a) * 2  # noqa: E731
    dx, dy = x.cuda(), y.cuda()

    def both() -> str:
        host = median(lambda: run(x.cuda(), y.cuda()).cpu())

        def device() -> None:
            run(dx, dy)
            torch.cuda.synchronize()

        return f"host in, host out {host:.1f} us; device in, device out {median(device):.1f} us"

    check("time_torch_eager", both)

    def tensors() -> str:
        method = program("seed_net").load_method("forward")
        return f"{median(lambda: method.execute([x, y])):.1f} us"

    check("time_seed_net_torch_host_tensors", tensors)
    if (PROGRAMS / "resident_net.pte").exists():

        def times() -> str:
            method = program("resident_net").load_method("forward")
            stream = torch.cuda.current_stream()

            def call() -> None:
                method.execute([dx, dy])
                torch.cuda.synchronize()

            def ordered() -> None:
                method.execute([dx, dy], stream=stream)
                stream.synchronize()

            parts = [median(call), median(ordered), median(torch.cuda.synchronize)]
            alone = median(lambda: method.execute([dx, dy]))
            return "synchronised {:.1f} us, named stream {:.1f}, torch's synchronize alone {:.1f}, not waited for {:.1f}".format(
                *parts, alone
            )

        check("time_resident_net_torch_device_tensors", times)


def adapters() -> None:
    """CuPy and PyTorch in memory of Arenite's pools."""
    try:
        import cupy
    except ImportError:
        cupy = None
    if cupy is not None:

        def by_cupy() -> str:
            import arenite.adapters

            pool = arenite.Pool("cuda:0")
            cupy.cuda.set_allocator(arenite.adapters.cupy(pool))
            try:
                x = cupy.arange(1 << 16, dtype=cupy.float32)
                for stream in (cupy.cuda.Stream(), cupy.cuda.Stream(), cupy.cuda.Stream.null):
                    with stream:
                        for _ in range(20):
                            y = (x * 2 + 1).sum()
                        stream.synchronize()
                    expect(float(y) == float((2.0 * np.arange(1 << 16) + 1).sum(dtype=np.float32)), f"sum {y}")
                expect(pool.stats()["live_bytes"] >= x.nbytes, str(pool.stats()))
                held = pool.stats()["capacity_bytes"]
                pair = median(lambda: cupy.empty(1 << 20, cupy.uint8))
                del x, y
            finally:
                cupy.cuda.set_allocator()
            left = pool.stats()["live_bytes"]
            expect(left == 0, f"{left} bytes left")
            return f"held {held}, empty array of 1 MiB {pair:.2f} us"

        check("adapter_cupy", by_cupy)
    try:
        import torch
    except ImportError:
        return

    def by_torch() -> str:
        return child(
            "import torch, arenite, arenite.adapters\n"
            "torch.cuda.memory.change_current_allocator(arenite.adapters.torch())\n"
            "x = torch.arange(1 << 16, device='cuda', dtype=torch.float32)\n"
            "w = torch.randn(256, 256, device='cuda')\n"
            "a = (x * 2 + 1).sum().item()\n"
            "b = (w @ w.T).diagonal().min().item()\n"
            "s = torch.cuda.Stream()\n"
            "with torch.cuda.stream(s):\n"
            "    c = (x + 1).sum().item()\n"
            "held = arenite._arenite._torch_memory()\n"
            "assert a == float(2 * (65535 * 65536 / 2) + 65536) and b > 0, (a, b)\n"
            "assert held[0] >= x.nbytes + w.nbytes, held\n"
            "del x, w\n"
            "torch.cuda.synchronize()\n"
            "print(held[0], 'then', arenite._arenite._torch_memory()[0])\n"
        )

    check("adapter_torch", by_torch)


def machine() -> None:
    """What this machine is."""
    spaces = arenite.Runtime.get().spaces
    for name, space in spaces.items():
        if space.available and name.startswith("cuda"):
            print(f"{name}: {space}")
    print(f"Python {sys.version.split()[0]}, NumPy {np.__version__}, Arenite {arenite.__version__}")


if __name__ == "__main__":
    for word in sys.argv[1:]:
        if word != "torch":
            globals()[word]()
    sys.exit(1 if failures else 0)
