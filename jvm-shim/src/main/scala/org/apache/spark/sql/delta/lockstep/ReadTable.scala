package org.apache.spark.sql.delta.lockstep

import java.lang.invoke.MethodHandles
import java.lang.reflect.Constructor

import org.apache.spark.sql.catalyst.catalog.CatalogTable
import org.apache.spark.sql.delta.Snapshot
import org.apache.spark.sql.delta.catalog.DeltaTableV2
import org.apache.xbean.asm9.Opcodes._
import org.apache.xbean.asm9.{ClassWriter, Type}

/**
 * Delta's table with the snapshot that was read of it. Delta's own looks for its snapshot itself, as does each copy of it:
 * for a table at a version it lists the log twice, to see that there is this version. So this has the class
 * {{{
 *   public final class TableAtSnapshot extends DeltaTableV2 {
 *     private final Snapshot snapshot;
 *     public TableAtSnapshot(<the parameters of DeltaTableV2's>, Snapshot snapshot) { super(…); this.snapshot = snapshot; }
 *     public Snapshot initialSnapshot() { return snapshot; }
 *   }
 * }}}
 * Scala lets nobody write it, for to Scala that constructor is private, and to the JVM it is not. In Java, a JDK would be
 * needed to build Lockstep. So it is written by the means that Spark itself has for classes, once a driver.
 */
private object ReadTable {

  def of(table: DeltaTableV2, as: CatalogTable, snapshot: Snapshot): DeltaTableV2 =
    classOf[DeltaTableV2].cast(
      constructor.newInstance(
        table.spark,
        table.path,
        Some(as),
        table.tableIdentifier,
        table.timeTravelOpt,
        table.options,
        snapshot))

  private lazy val constructor: Constructor[_] = MethodHandles.lookup().defineClass(written).getConstructors.head

  private def written: Array[Byte] = {
    val name = "org/apache/spark/sql/delta/lockstep/TableAtSnapshot"
    val parent = Type.getInternalName(classOf[DeltaTableV2])
    val snapshot = Type.getType(classOf[Snapshot])
    val parameters = classOf[DeltaTableV2].getConstructors.head.getParameterTypes.map(kind => Type.getType(kind))
    def constructorOf(types: Array[Type]) = Type.getMethodDescriptor(Type.VOID_TYPE, types: _*)

    val writer = new ClassWriter(ClassWriter.COMPUTE_MAXS)
    writer.visit(V17, ACC_PUBLIC | ACC_FINAL | ACC_SUPER, name, null, parent, null)
    writer.visitField(ACC_PRIVATE | ACC_FINAL, "snapshot", snapshot.getDescriptor, null, null).visitEnd()

    val make = writer.visitMethod(ACC_PUBLIC, "<init>", constructorOf(parameters :+ snapshot), null, null)
    (0 to parameters.length).foreach(make.visitVarInsn(ALOAD, _))
    make.visitMethodInsn(INVOKESPECIAL, parent, "<init>", constructorOf(parameters), false)
    make.visitVarInsn(ALOAD, 0)
    make.visitVarInsn(ALOAD, parameters.length + 1)
    make.visitFieldInsn(PUTFIELD, name, "snapshot", snapshot.getDescriptor)
    make.visitInsn(RETURN)
    make.visitMaxs(0, 0)
    make.visitEnd()

    val read = writer.visitMethod(ACC_PUBLIC, "initialSnapshot", Type.getMethodDescriptor(snapshot), null, null)
    read.visitVarInsn(ALOAD, 0)
    read.visitFieldInsn(GETFIELD, name, "snapshot", snapshot.getDescriptor)
    read.visitInsn(ARETURN)
    read.visitMaxs(0, 0)
    read.visitEnd()

    writer.visitEnd()
    writer.toByteArray
  }
}
