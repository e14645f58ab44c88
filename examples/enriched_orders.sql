-- Join orders with the names of their customers and write the result to a topic.
--
--     mainstem pipeline run examples/enriched_orders.sql
--
-- The pipeline reads customers once, when it starts. The last record of each customer wins.

CREATE SOURCE orders TOPIC 'orders' SCHEMA (id long, customer string, amount double);

CREATE STATIC SOURCE customers TOPIC 'customers' SCHEMA (id string, name string, _partition_id int, _offset long);

CREATE VIEW newest AS
SELECT id, max_by(name, struct(_partition_id, _offset)) AS name FROM customers GROUP BY id;

CREATE TOPIC 'orders.enriched' KEY customer AS
SELECT orders.id, orders.customer, newest.name, orders.amount
FROM orders LEFT JOIN newest ON orders.customer = newest.id;
