-- Both marts are made of the same orders: rows of this query are what is wrong.
select r.amount as by_customer, d.amount as by_day
from (select sum(amount) as amount from {{ ref('revenue') }}) as r
cross join (select sum(amount) as amount from {{ ref('days') }}) as d
where r.amount <> d.amount
