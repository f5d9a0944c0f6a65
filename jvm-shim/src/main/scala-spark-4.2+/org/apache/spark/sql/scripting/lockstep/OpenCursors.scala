package org.apache.spark.sql.scripting.lockstep

import org.apache.spark.sql.catalyst.{InternalRow, SqlScriptingContextManager}
import org.apache.spark.sql.scripting.{CursorOpened, SqlScriptingExecutionContext}

/** The cursors of the script that this thread runs. */
object OpenCursors {

  /** Gives those that were opened, and not fetched from yet, other rows: by their own ones. */
  def replace(rows: Iterator[InternalRow] => Iterator[InternalRow]): Unit =
    SqlScriptingContextManager.get().map(_.getContext).foreach {
      case script: SqlScriptingExecutionContext =>
        for {
          frame <- script.frames
          scope <- frame.scopes
        } scope.cursorStates.mapValuesInPlace {
          case (_, CursorOpened(own, columns)) => CursorOpened(rows(own), columns)
          case (_, other) => other
        }
      case _ => ()
    }
}
