-- Let go of what rows held before they were changed. Not inside a transaction.
vacuum {schema}.vault;
