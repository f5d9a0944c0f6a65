"""Structured Streaming into several tables, exactly once.

    writer = orders.writeStream.foreachBatch(lockstep.foreach_batch(load, application="orders"))
    writer.option("checkpointLocation", checkpoint).start()

Spark calls the function of a micro-batch again if it dies before its checkpoint says that the batch is done
(`foreachBatch` is at least once). So the batch's number goes into the timeline's entry that makes its
rows real, and a batch whose number is there already is passed over, as Delta does it for one table with `txnAppId` and
`txnVersion` (PROTOCOL.md, "Transaction Identifiers").
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from lockstep.arguments import check_result, check_runs_when_called, takes
from lockstep.retry import AGAIN
from lockstep.spark.session import SessionTransaction, run
from lockstep.timeline.entry import Batch, Isolation
from lockstep.transactions.batches import check_batch

_log = logging.getLogger(__name__)


@takes(fn=Callable, application=str, attempts=int)
def foreach_batch(
    fn: Callable[[DataFrame, int], Any],
    *,
    application: str,
    attempts: int = AGAIN.attempts,
    isolation: Isolation | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Callable[[DataFrame, int], None]:
    """Return a function for `writeStream.foreachBatch` that runs `fn` once for each micro-batch, in a transaction.

    The transaction belongs to the batch's own session, `frame.sparkSession`: statements of another session are not part
    of it. It is run again from the start as by `lockstep.run`, also after a COMMIT without an answer. If a batch is
    already recorded, `fn` is not called for it. This is logged, as a warning if a later batch is recorded too.

    Args:
        fn: gets the batch's rows and its number. It may be called again for the same batch, if nothing of the call
            before was kept.
        application: the stream's name in the timeline, 1 to 256 characters. Keep it for as long as the stream's
            checkpoint exists. Use another one with each new checkpoint, because numbers begin at 0 there.
        attempts: how often a batch is tried at most, 1 or more.

    Raises:
        InvalidError: the application's name is too long, or empty; fewer than one attempt; or `fn` does nothing when
            it is called (`async def`, a generator).
        LockstepError: raised by the returned function, and so by the query: the error of the last attempt.
    """
    check_batch(Batch(application=application, number=0))
    replace(AGAIN, attempts=attempts)  # now, and not in the query's first batch
    check_runs_when_called(fn)

    def write(frame: DataFrame, number: int) -> None:
        def carry_out(tx: SessionTransaction) -> None:
            if tx.is_replay:
                _pass_over(application, number, tx.last_batch)
            else:
                check_result(fn(frame, number))

        batch = (application, number)
        comment = f"batch {number} of {application}"
        run(
            frame.sparkSession,
            carry_out,
            attempts=attempts,
            isolation=isolation,
            comment=comment,
            batch=batch,
            sleep=sleep,
        )

    return write


def _pass_over(application: str, number: int, last: int | None) -> None:
    if number == last:
        _log.info("batch %d of application %s is done already: passed over", number, application)
        return
    _log.warning(
        "batch %d of application %s is passed over, for batch %s is the last that is done. If the stream has a new "
        "checkpoint, these rows are lost to its tables: give it another application name, and a new checkpoint again",
        number,
        application,
        last,
    )
