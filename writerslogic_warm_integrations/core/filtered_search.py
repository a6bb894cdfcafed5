from warm_integrations.core.filtered_search import *
