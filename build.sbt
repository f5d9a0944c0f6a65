// The shim's jar, for one Spark minor: compiled against the jars of pip's pyspark, so the two cannot drift apart.
// Run it by `make jar`, which says where those jars and Delta's are (project/bootstrap.py).

def told(property: String): String =
  sys.props.getOrElse(property, sys.error(s"-D$property is not set: use `make jar`, which runs project/bootstrap.py"))

lazy val sparkJars: Seq[File] = (file(told("lockstep.pyspark.jars")) * "*.jar").get().sortBy(_.getName)

lazy val deltaJars: Seq[File] =
  told("lockstep.delta.jars").split(java.io.File.pathSeparator).toSeq.filter(_.nonEmpty).map(file(_))

def versionOf(artifact: String): String = {
  val named = s"${java.util.regex.Pattern.quote(artifact)}-(\\d[^-]*)\\.jar".r
  val found = sparkJars.map(_.getName).collectFirst { case named(version) => version }
  found.getOrElse(sys.error(s"no $artifact among the jars"))
}

lazy val deltaVersion: String =
  """delta-spark_\S+-(\d[^-]*)\.jar""".r
    .findFirstMatchIn(deltaJars.map(_.getName).mkString("\n"))
    .fold(sys.error("no delta-spark among Delta's jars"))(_.group(1))

lazy val sparkMinor: String = versionOf("spark-core_2.13").split('.').take(2).mkString(".")

// Sources that are not every Spark's: `scala-spark-4.1+` is for 4.1 and newer, `scala-spark-4.1-` for 4.1 and older.
def isForSpark(folder: File): Boolean = {
  def number(minor: String): Int = minor.split('.').map(_.toInt).reduce(_ * 1000 + _)
  val named = """scala-spark-(\d+\.\d+)([+-])""".r
  folder.getName match {
    case named(minor, "+") => number(sparkMinor) >= number(minor)
    case named(minor, "-") => number(sparkMinor) <= number(minor)
    case name => name == "scala" || name == "java"
  }
}

lazy val lockstepVersion: String =
  """__version__ = "(.*)"""".r
    .findFirstMatchIn(IO.read(file("python/lockstep/_version.py")))
    .fold(sys.error("no __version__ in python/lockstep/_version.py"))(_.group(1))

lazy val shimJar = taskKey[File]("The shim's jar, where the Python package looks for it.")

lazy val shim = project
  .in(file("."))
  .settings(
    name := "lockstep-shim",
    moduleName := s"lockstep-spark_$sparkMinor", // sbt would turn a name's dot into a dash
    organization := "lockstep",
    version := lockstepVersion,
    scalaVersion := versionOf("scala-library"),
    autoScalaLibrary := false, // Spark brings it
    target := baseDirectory.value / "jvm-shim" / "target" / s"spark-$sparkMinor",
    Compile / unmanagedJars := (sparkJars ++ deltaJars).classpath,
    Compile / unmanagedSourceDirectories :=
      (baseDirectory.value / "jvm-shim" / "src" / "main" * DirectoryFilter).get().filter(isForSpark),
    Compile / unmanagedResourceDirectories := Seq(baseDirectory.value / "jvm-shim" / "src" / "main" / "resources"),
    Test / unmanagedSourceDirectories := Nil, // the shim is tested from Python, in a real session
    Test / unmanagedResourceDirectories := Nil,
    scalacOptions ++= Seq(
      "-release:17",
      "-encoding:utf-8",
      "-deprecation",
      "-feature",
      "-unchecked",
      "-explaintypes",
      "-Xlint",
      "-Wdead-code",
      "-Wextra-implicit",
      "-Wnumeric-widen",
      "-Woctal-literal",
      "-Wunused",
      "-Wvalue-discard",
      "-Wconf:cat=unused-nowarn:s", // what one Spark has deprecated another has not
      "-Werror"
    ),
    Compile / sourceGenerators += Def.task {
      val built = (Compile / sourceManaged).value / "Built.scala"
      IO.write(
        built,
        s"""|package lockstep.spark
            |
            |/** What this jar was compiled against. */
            |private[spark] object Built {
            |  val Spark = "$sparkMinor"
            |  val Delta = "$deltaVersion"
            |}
            |""".stripMargin
      )
      Seq(built)
    },
    javacOptions ++= Seq("--release", "17", "-encoding", "utf-8", "-Xlint:all", "-Werror"),
    Compile / packageBin / mappings += (baseDirectory.value / "LICENSE") -> "META-INF/LICENSE",
    artifactName := { (scala, module, artifact) =>
      s"${artifact.name}_${scala.binary}-${module.revision}.${artifact.extension}"
    },
    shimJar := {
      val built = (Compile / packageBin).value
      val jars = baseDirectory.value / "python" / "lockstep" / "jars"
      // Another version's jar of this Spark minor would travel along in the wheel.
      IO.delete((jars * s"lockstep-spark_${sparkMinor}_*.jar").get().filterNot(_.getName == built.getName))
      val jar = jars / built.getName
      // Renamed into place: a Spark that runs keeps the jar that it opened.
      val written = jars / s".${built.getName}.new"
      IO.copyFile(built, written)
      java.nio.file.Files.move(
        written.toPath,
        jar.toPath,
        java.nio.file.StandardCopyOption.ATOMIC_MOVE,
        java.nio.file.StandardCopyOption.REPLACE_EXISTING
      )
      streams.value.log.info(s"wrote ${IO.relativize(baseDirectory.value, jar).getOrElse(jar)}")
      jar
    }
  )
