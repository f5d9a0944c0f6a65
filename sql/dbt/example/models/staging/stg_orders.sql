select id, customer, cast(amount as decimal(10, 2)) as amount, cast(ordered_on as date) as ordered_on
from {{ ref('orders') }}
where amount > {{ var('least', 0) }}
