{#
  One transaction for a whole run of dbt. In dbt_project.yml:

      on-run-start: "{{ lockstep.begin() }}"
      on-run-end: "{{ lockstep.end(results) }}"

  Readers see what was there before until all models, seeds, snapshots and tests have passed, then all that is new at once.
  A failure, of a test too, leaves nothing. With dbt-spark's session method all of a run is one Spark session; with its
  thrift method the profile has the run's connections share a transaction. Without either, begin() refuses to begin.
#}

{% macro begin(isolation='SERIALIZABLE') %}
  {%- if execute and lockstep.runs_nodes() -%}
    {%- if lockstep.is_retry() -%}
      {{ exceptions.raise_compiler_error(
        "lockstep.begin(): the run that `dbt retry` would go on with was rolled back, so what it had done is not there any "
        ~ "more, and dbt would leave it out. Run `dbt " ~ flags.WHICH ~ "` itself again, as it was called"
      ) }}
    {%- endif -%}
    {%- if target.host != 'session' and run_query("SET lockstep.shared_transaction").rows[0][1] != invocation_id -%}
      {{ exceptions.raise_compiler_error(
        "lockstep.begin(): dbt opens a connection for each node, and each would commit on its own. With `method: thrift` "
        ~ "let those of a run share a transaction, by this line of the profile's server_side_parameters: "
        ~ "`set:hiveconf:lockstep.shared_transaction: '{{ invocation_id }}'`. With `method: session` say `host: session` "
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
  {%- if execute and lockstep.runs_nodes() -%}
    {%- set failed = results | rejectattr('status', 'in', ['success', 'pass', 'warn', 'no-op']) | list -%}
    {%- do run_query('ROLLBACK' if failed else 'COMMIT') -%}
    {%- if failed -%}
      {%- do log('lockstep: ' ~ (failed | length) ~ ' of ' ~ (results | length) ~ ' did not pass; all is rolled back', info=true) -%}
    {%- endif -%}
  {%- endif -%}
{% endmacro %}

{# `dbt compile`, `show` and `docs generate` render the hooks among all else, in any order, and run none of them. #}
{% macro runs_nodes() %}
  {{- return(flags.WHICH not in ['compile', 'show', 'generate']) -}}
{% endmacro %}

{# dbt tells a retry's macros that they are run by the command that is tried again; what was typed says more. #}
{% macro is_retry() %}
  {%- set commands = ['retry', 'build', 'run', 'seed', 'snapshot', 'test', 'run-operation'] -%}
  {%- set typed = (invocation_args_dict.get('invocation_command') or '').split() | select('in', commands) | list -%}
  {{- return(typed[:1] == ['retry']) -}}
{% endmacro %}
