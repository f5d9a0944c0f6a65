{#
  One transaction for a whole run of dbt. In dbt_project.yml:

      on-run-start: "{{ lockstep.begin() }}"
      on-run-end: "{{ lockstep.end(results) }}"

  Readers see what was there before until all models, seeds, snapshots and tests have passed, then all that is new at once.
  A failure, of a test too, leaves nothing. Needs dbt-spark's session method: all of a run is one Spark session there. With
  any other, begin() refuses to begin.
#}

{% macro begin(isolation='SERIALIZABLE') %}
  {%- if execute -%}
    {%- if target.host != 'session' -%}
      {{ exceptions.raise_compiler_error(
        "lockstep.begin(): a run is one transaction with dbt-spark's method `session` alone; with others dbt uses several "
        ~ "Spark sessions, and each would commit on its own. Say so in the profile: `method: session`, and `host: session` "
        ~ "too, for dbt tells macros of the host and not of the method"
      ) }}
    {%- endif -%}
    {%- do run_query(
      "BEGIN TRANSACTION ISOLATION LEVEL " ~ isolation ~ " COMMENT 'dbt " ~ flags.WHICH ~ " " ~ invocation_id ~ "'"
    ) -%}
  {%- endif -%}
{% endmacro %}

{#
  COMMIT if all of a run has passed, else ROLLBACK; a COMMIT that is refused fails the run. What passes is listed, so that a
  status that dbt invents tomorrow rolls back.
#}
{% macro end(results) %}
  {%- if execute -%}
    {%- set failed = results | rejectattr('status', 'in', ['success', 'pass', 'warn', 'no-op']) | list -%}
    {%- do run_query('ROLLBACK' if failed else 'COMMIT') -%}
    {%- if failed -%}
      {%- do log('lockstep: ' ~ (failed | length) ~ ' of ' ~ (results | length) ~ ' did not pass; all is rolled back', info=true) -%}
    {%- endif -%}
  {%- endif -%}
{% endmacro %}
