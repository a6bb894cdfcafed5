from warm_integrations.core.item_words import *
