"""The doctor: collects facts about a store or one request, checks them and explains them."""
