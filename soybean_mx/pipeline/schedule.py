"""Schedules of pipelined training, as data: what each device does, in which order, with which version of its weights.

=========================  ====================================================================================
``gpipe``                  all forward passes of a batch's microbatches, then all backward passes, then the update
``flush``                  one forward, one backward (1F1B) within a batch, then the update: exact as ``gpipe``
``interleaved``            as ``flush``, with several stages on each device
``1f1b``                   PipeDream: no flush; every stage updates after every minibatch and stashes versions
``1f1b-vertical-sync``     as ``1f1b``, but all stages use the version that the first one had
``2bw``                    1F1B over the microbatches of all batches, one update per batch, two versions
=========================  ====================================================================================

Times are in units of one forward pass of one stage, of which a backward pass takes a given number.
"""
from __future__ import annotations

from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

SCHEDULES = ("gpipe", "flush", "interleaved", "1f1b", "1f1b-vertical-sync", "2bw")
SYNCHRONOUS = ("gpipe", "flush", "interleaved")
PER_MINIBATCH = ("1f1b", "1f1b-vertical-sync")
FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"


class ScheduleError(ValueError):
    """A schedule that does not exist, or that cannot be followed; the message says what is allowed."""


class Operation(NamedTuple):
    """A piece of work of one device.

    ``microbatch`` counts from the start of the run; for an update it is the last one that the update takes in.
    ``version`` is the number of updates that the weights have seen which the operation reads (for an update: makes).
    """

    kind: str
    stage: int
    microbatch: int
    version: int


def checked(schedule: str) -> str:
    """The name of a schedule, if there is one.

    Raises
    ------
    ScheduleError
        When there is none of that name.
    """
    if schedule not in SCHEDULES:
        raise ScheduleError(f"The schedule {schedule!r} is unknown: give one of {', '.join(SCHEDULES)}.")
    return schedule


def warm_up_forwards(replicas: Sequence[int], stage: int) -> int:
    """How many forward passes a device of a stage starts with before it alternates: PipeDream's formula.

    Parameters
    ----------
    replicas : sequence of int
        The number of devices of each stage.
    stage : int
        The stage.
    """
    return (sum(replicas) - 1 - sum(replicas[:stage])) // replicas[stage]


def versions_alive(schedule: str, replicas: Sequence[int], stage: int) -> int:
    """The most versions of a stage's weights that are alive at once, the newest one included."""
    if schedule == "1f1b":
        return warm_up_forwards(replicas, stage) + 1
    if schedule == "1f1b-vertical-sync":
        return warm_up_forwards(replicas, 0) + 1
    if schedule == "2bw":
        return 2
    return 1


def in_flight(schedule: str, replicas: Sequence[int], stage: int, microbatches: int) -> int:
    """The most microbatches of which a device of a stage holds activations (not for ``interleaved``)."""
    mine = -(-microbatches // replicas[stage])
    return mine if schedule == "gpipe" else min(mine, warm_up_forwards(replicas, stage) + 1)


class Cursor:
    """Where one device is in its sequence of forward and backward passes: 1F1B behind some forward passes.

    Parameters
    ----------
    warm_up : int or None
        The forward passes before it alternates; None: all that there are.
    """

    def __init__(self, warm_up: Optional[int]):
        self.warm_up, self.forwards, self.backwards = warm_up, 0, 0

    def next(self, available: int, draining: bool) -> Optional[Tuple[str, int]]:
        """The next operation, FORWARD or BACKWARD, and which of the device's own microbatches it is for.

        Parameters
        ----------
        available : int
            How many microbatches this device has been given.
        draining : bool
            Whether no more will come.
        """
        held = self.forwards - self.backwards
        full = self.warm_up is not None and held > self.warm_up
        if self.forwards < available and not full:
            return FORWARD, self.forwards
        if held and (full or draining):
            return BACKWARD, self.backwards
        return None

    def done(self, kind: str) -> None:
        """Go on by one operation."""
        if kind == FORWARD:
            self.forwards += 1
        else:
            self.backwards += 1


def interleaved_order(devices: int, stages: int, device: int, microbatches: int) -> List[Tuple[str, int, int]]:
    """The sequence of (kind, stage, microbatch) of one device that has every ``devices``-th stage.

    Raises
    ------
    ScheduleError
        When the microbatches are no multiple of the devices, or the stages are not.
    """
    if stages % devices or microbatches % devices:
        raise ScheduleError(f"The schedule 'interleaved' was given {stages} stages and {microbatches} microbatches on "
                            f"{devices} devices: give multiples of {devices} of both.")
    chunks = stages // devices
    total, round_size = microbatches * chunks, devices * chunks

    def place(number: int, backward: bool) -> Tuple[int, int]:
        chunk = number % round_size // devices
        return ((chunks - 1 - chunk if backward else chunk) * devices + device,
                number // round_size * devices + number % devices)

    warm_up = min(total, (devices - 1 - device) * 2 + (chunks - 1) * devices)
    result = [(FORWARD, *place(number, False)) for number in range(warm_up)]
    for number in range(total - warm_up):
        result += [(FORWARD, *place(warm_up + number, False)), (BACKWARD, *place(number, True))]
    return result + [(BACKWARD, *place(number, True)) for number in range(total - warm_up, total)]


class Runner:
    """Deals out the operations of all devices in an order in which everything that each of them needs comes first.

    It is what the trainer follows, and what :func:`operations` writes down. Microbatches are given with :meth:`add`;
    :meth:`ready` yields what can be queued then.

    Parameters
    ----------
    schedule : str
        One of SCHEDULES.
    replicas : sequence of int
        The number of devices of each stage. For ``interleaved`` all are 1.
    devices : int, optional
        For ``interleaved``, the number of devices; stage s is on device s mod devices.

    Raises
    ------
    ScheduleError
        When there is no such schedule, or it has no replicated stages.
    """

    def __init__(self, schedule: str, replicas: Sequence[int], devices: Optional[int] = None):
        self.schedule, self.replicas = checked(schedule), tuple(replicas)
        if schedule == "interleaved" and set(replicas) != {1}:
            raise ScheduleError(f"The schedule 'interleaved' was given the replicas {list(replicas)}: give one device "
                                "to each stage, or choose another schedule.")
        if schedule == "1f1b-vertical-sync" and len(set(replicas)) > 1:
            raise ScheduleError(f"The schedule '1f1b-vertical-sync' was given the replicas {list(replicas)}, with "
                                "which the stages have different versions: give each stage as many, or choose '1f1b'.")
        self._devices = devices or len(replicas)
        self.base = [0] * len(replicas)  # updates of each stage before this start of the pipeline
        self._restart()

    def _restart(self) -> None:
        stages = range(len(self.replicas))
        warm_up = [None if self.schedule == "gpipe" else warm_up_forwards(self.replicas, stage) for stage in stages]
        self._cursors = {(stage, replica): Cursor(warm_up[stage])
                         for stage in stages for replica in range(self.replicas[stage])}
        self._batches: List[range] = []
        self._batch_of: Dict[int, int] = {}
        self._pushed: Dict[Tuple[str, int], set] = {(kind, stage): set() for kind in (FORWARD, BACKWARD)
                                                    for stage in stages}
        self._updates = [0] * len(self.replicas)
        self._lists: List[List[Tuple[str, int, int]]] = []
        self.draining = False

    @property
    def given(self) -> int:
        """How many microbatches there are since the pipeline was last empty."""
        return len(self._batch_of)

    def add(self, microbatches: int) -> range:
        """Give a batch of some microbatches; returns their numbers since the pipeline was last empty."""
        if self.schedule in SYNCHRONOUS:
            self.base = [base + done for base, done in zip(self.base, self._updates)]
            self._restart()
            self.draining = True
        if self.schedule == "interleaved":
            self._lists = [interleaved_order(self._devices, len(self.replicas), device, microbatches)
                           for device in range(self._devices)]
        if self.schedule == "2bw" and microbatches < warm_up_forwards(self.replicas, 0):
            # Else a version would be asked for before the update that makes it.
            raise ScheduleError(f"The schedule '2bw' was given a batch of {microbatches} microbatches: give at least "
                                f"{warm_up_forwards(self.replicas, 0)}, the warm-up of its first stage.")
        added = range(self.given, self.given + microbatches)
        for number in added:
            self._batch_of[number] = len(self._batches)
        self._batches.append(added)
        return added

    def drain(self) -> Iterator[Operation]:
        """All that is left to do; after it the pipeline is empty, and starts anew with the next batch."""
        self.draining = True
        for stage, size in enumerate(self.replicas if self.schedule in PER_MINIBATCH else ()):
            # A last round that has fewer minibatches than the stage has devices may have been waiting for the others.
            if self.given % size:
                yield from self._update_if_complete(stage, self.given - 1)
        yield from self.ready()
        self.base = [base + done for base, done in zip(self.base, self._updates)]
        self._restart()

    def abandon(self) -> None:
        """Forget what is under way: a stage has failed."""
        self.base = [base + done for base, done in zip(self.base, self._updates)]
        self._restart()

    def ready(self) -> Iterator[Operation]:
        """All operations whose turn it is, and that need nothing that is not given yet."""
        moved = True
        while moved:
            moved = False
            for device in range(self._devices if self._lists else len(self._cursors)):
                operation = self._of_list(device) if self._lists else self._of_cursor(device)
                if operation is not None:
                    moved = True
                    yield operation
                    yield from self._update_after(operation)

    def _of_list(self, device: int) -> Optional[Operation]:
        if not self._lists[device]:
            return None
        kind, stage, number = self._lists[device][0]
        if not self._has_what_it_needs(kind, stage, number):
            return None
        self._lists[device].pop(0)
        self._pushed[kind, stage].add(number)
        return Operation(kind, stage, number, self.version(stage, number))

    def _of_cursor(self, device: int) -> Optional[Operation]:
        (stage, replica), cursor = list(self._cursors.items())[device]
        mine = range(replica, self.given, self.replicas[stage])
        found = cursor.next(len(mine), self.draining)
        if found is None or not self._has_what_it_needs(found[0], stage, mine[found[1]]):
            return None
        kind, number = found[0], mine[found[1]]
        cursor.done(kind)
        self._pushed[kind, stage].add(number)
        return Operation(kind, stage, number, self.version(stage, number))

    def _has_what_it_needs(self, kind: str, stage: int, number: int) -> bool:
        if kind == FORWARD:
            return ((stage == 0 or number in self._pushed[FORWARD, stage - 1])
                    and self.version(stage, number) <= self.base[stage] + self._updates[stage])
        last = stage == len(self.replicas) - 1
        # A round of replicas is complete, and its update queued, before a gradient of the next one takes the place of
        # one of its own.
        if self.schedule in PER_MINIBATCH and self._updates[stage] < number // self.replicas[stage]:
            return False
        return number in self._pushed[FORWARD, stage] and (last or number in self._pushed[BACKWARD, stage + 1])

    def version(self, stage: int, number: int) -> int:
        """The version of a stage's weights that a microbatch is to use."""
        if self.schedule == "2bw":
            return self.base[stage] + max(0, self._batch_of[number] - 1)
        if self.schedule not in PER_MINIBATCH:
            return self.base[stage]
        if self.schedule == "1f1b-vertical-sync":
            return self.base[stage] + max(0, number // self.replicas[0] - warm_up_forwards(self.replicas, 0))
        return self.base[stage] + max(0, number // self.replicas[stage] - warm_up_forwards(self.replicas, stage))

    def oldest_wanted(self, stage: int, upcoming: int) -> int:
        """The oldest version of a stage's weights that a forward pass to come may ask for, once there is a new one.

        Parameters
        ----------
        stage : int
            The stage.
        upcoming : int
            The new version.
        """
        if self.schedule == "2bw":
            return upcoming - 1
        if self.schedule != "1f1b-vertical-sync":
            return upcoming
        done = min(self._cursors[stage, replica].forwards for replica in range(self.replicas[stage]))
        return self.base[stage] + max(0, done - warm_up_forwards(self.replicas, 0))

    def group(self, stage: int, number: int) -> range:
        """The microbatches whose gradients go into one update of a stage, one of which is given."""
        if self.schedule not in PER_MINIBATCH:
            return self._batches[self._batch_of[number]]
        size = self.replicas[stage]
        start = number // size * size
        return range(start, min(start + size, self.given) if self.draining else start + size)

    def _update_after(self, operation: Operation) -> Iterator[Operation]:
        if operation.kind == BACKWARD:
            yield from self._update_if_complete(operation.stage, operation.microbatch)

    def _update_if_complete(self, stage: int, number: int) -> Iterator[Operation]:
        group = self.group(stage, number)
        if self._pushed[BACKWARD, stage].issuperset(group):
            self._updates[stage] += 1
            yield Operation(UPDATE, stage, group[-1], self.base[stage] + self._updates[stage])


def operations(schedule: str, replicas: Sequence[int], batches: Sequence[int],
               devices: Optional[int] = None) -> List[Operation]:
    """All operations of a run, in an order in which they can be queued.

    Parameters
    ----------
    schedule, replicas, devices
        As of :class:`Runner`.
    batches : sequence of int
        The number of microbatches of each batch.

    Returns
    -------
    list of Operation
        For schedules that flush, the microbatches of each batch count from 0.
    """
    runner = Runner(schedule, replicas, devices)
    result: List[Operation] = []
    for count in batches:
        runner.add(count)
        result += runner.ready()
    return result + list(runner.drain())


def bubble(schedule: str, stages: int, microbatches: int, chunks: int = 1) -> float:
    """The part of its time that a device is idle, in a batch of a schedule that flushes, by formula.

    Parameters
    ----------
    schedule : str
        One of SYNCHRONOUS (others have no bubble in steady state: 0).
    stages : int
        The number of devices; all stages take the same time.
    microbatches : int
        Of each batch.
    chunks : int
        The number of stages on a device.
    """
    if schedule not in SYNCHRONOUS:
        return 0.0
    return (stages - 1) / (microbatches * chunks + stages - 1)


def simulated_bubble(order: Sequence[Operation], devices: int, backward: float = 2.0,
                     costs: Optional[Mapping[Tuple[str, int], float]] = None) -> float:
    """The part of their time that the devices are idle in a run, with no time for transfers and updates.

    Parameters
    ----------
    order : sequence of Operation
        Of one batch, from :func:`operations`, of stages that are not replicated.
    devices : int
        The number of devices; stage s is on device s mod devices.
    backward : float
        Forward passes that a backward pass takes as long as, where all stages are equal.
    costs : mapping of (str, int) to float, optional
        The time of each kind of pass of each stage, where they are not.
    """
    last_stage = max(operation.stage for operation in order)
    free, ends, busy = [0.0] * devices, {}, [0.0] * devices
    for kind, stage, number, _ in order:
        if kind == UPDATE:
            continue
        needed = [(kind, stage - 1, number)] if kind == FORWARD else [(kind, stage + 1, number)]
        if kind == BACKWARD and stage == last_stage:
            needed = [(FORWARD, stage, number)]
        device = stage % devices
        cost = costs[kind, stage] if costs is not None else 1.0 if kind == FORWARD else backward
        free[device] = max([free[device], *(ends[key] for key in needed if key in ends)]) + cost
        ends[kind, stage, number] = free[device]
        busy[device] += cost
    return 1 - sum(busy) / (devices * max(free))
